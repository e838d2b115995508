//! The permanent cost of queries about the past, while objects change: the history of pushes, and
//! the record.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Sizes;
use crate::figure::{Figure, median};
use crate::plane::{Plane, Programs};

/// The maximum size of a proxy's push history, in bytes.
const HISTORY: f64 = 2_000.0;
/// The maximum CPU of the record, in percent of a core.
const RECORD: f64 = 2.0;
/// The smallest difference between two runs that is significant, in percent of a core.
const UNSEEN: f64 = 1.0;
/// Clock ticks per second in `/proc`, a constant of Linux' ABI.
const TICKS: f64 = 100.0;

/// The settings of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// The default: with a history.
    Usual,
    /// Without a history.
    Forgets,
    /// With a history and a record.
    Records,
}

/// The measurements of one run.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// CPU in percent of a core.
    cpu: f64,
    /// CPU of the thread that writes the record.
    record_thread: f64,
    /// CPU of the push thread, which sends most of the record's events.
    push_thread: f64,
    rss_kb: f64,
    /// Size of the history in bytes.
    history: f64,
}

/// Runs churn with each of the settings in turn.
pub(crate) async fn measure(
    programs: &Programs,
    sizes: &Sizes,
    [history, record]: [bool; 2],
) -> Result<(Vec<Figure>, Value)> {
    let manners = [
        (Manner::Usual, true),
        (Manner::Forgets, history),
        (Manner::Records, record),
    ];
    let mut all: Vec<(Manner, Taken)> = Vec::new();

    for round in 1..=sizes.rounds {
        for (manner, _) in manners.iter().filter(|(_, is_run)| *is_run) {
            let taken = run(programs, sizes, *manner).await?;
            eprintln!("round {round} of {}: {manner:?} {taken:?}", sizes.rounds);
            all.push((*manner, taken));
        }
    }

    let of = |manner: Manner, get: fn(&Taken) -> f64| {
        median(
            all.iter()
                .filter(|(other, _)| *other == manner)
                .map(|(_, taken)| get(taken))
                .collect(),
        )
    };

    let cpu = |manner| of(manner, |taken| taken.cpu);
    let proxies = sizes.churn_proxies as f64;
    let mut figures = Vec::new();
    let usual = cpu(Manner::Usual);
    let churn = format!(
        "{} changes a second, {} proxies, {} s",
        sizes.churn_rate, sizes.churn_proxies, sizes.churn_seconds
    );

    figures.push(Figure::beside(
        format!(
            "CPU as it is by default ({churn}, medians of {})",
            sizes.rounds
        ),
        usual,
        "% of a core",
    ));

    if history {
        let bytes = of(Manner::Usual, |taken| taken.history) / proxies;
        let without = cpu(Manner::Forgets);
        let rss =
            of(Manner::Usual, |taken| taken.rss_kb) - of(Manner::Forgets, |taken| taken.rss_kb);
        figures.push(Figure::with_goal(
            "history of pushes, memory a proxy (counted: `navarch_push_history_bytes`)",
            bytes,
            "bytes",
            HISTORY,
        ));

        figures.push(Figure::with_goal(
            "… CPU more than with `NAVARCH_PUSH_HISTORY=0`",
            usual - without,
            "% of a core",
            UNSEEN,
        ));

        figures.push(Figure::beside(
            "… resident memory more, of the process",
            rss,
            "kB",
        ));
    }

    if record {
        // The CPU of all threads varies more from run to run than the record costs, so the goal is
        // for the writing thread.
        let writes = of(Manner::Records, |taken| taken.record_thread);
        let pushes = |taken: &Taken| taken.push_thread;
        let more = writes + of(Manner::Records, pushes) - of(Manner::Usual, pushes);
        let what = "`--record`, CPU more of the threads that push and write";
        figures.push(Figure::with_goal(what, more, "% of a core", RECORD));
        figures.push(Figure::beside(
            "… relative to the CPU of all threads without it",
            100.0 * more / usual,
            "%",
        ));

        figures.push(Figure::beside(
            "… of it the thread that writes",
            writes,
            "% of a core",
        ));

        figures.push(Figure::beside(
            "… CPU more of all threads",
            cpu(Manner::Records) - usual,
            "% of a core",
        ));
    }

    let detail = |(manner, taken): &(Manner, Taken)| {
        let Taken {
            cpu,
            record_thread,
            push_thread,
            rss_kb,
            history,
        } = taken;
        json!({
            "manner": format!("{manner:?}"), "cpu_percent": cpu, "record_thread_percent": record_thread,
            "push_thread_percent": push_thread, "rss_kb": rss_kb, "history_bytes": history,
        })
    };

    Ok((figures, Value::Array(all.iter().map(detail).collect())))
}

/// One run on a new control plane.
async fn run(programs: &Programs, sizes: &Sizes, manner: Manner) -> Result<Taken> {
    let folder = tempfile::tempdir()?;
    let record = format!("--record={}", folder.path().join("record").display());
    let (environment, args): (&[(&str, &str)], Vec<String>) = match manner {
        Manner::Usual => (&[], Vec::new()),
        Manner::Forgets => (&[("NAVARCH_PUSH_HISTORY", "0")], Vec::new()),
        Manner::Records => (&[], vec![record]),
    };
    let plane = Plane::start(programs, sizes.services, environment, &args).await?;
    let pid = plane.navarch.pid();

    let [seconds, rate] = [sizes.churn_seconds, sizes.churn_rate].map(|number| number.to_string());
    let threads = || anyhow::Ok([thread_seconds(pid, "record")?, thread_seconds(pid, "push")?]);
    let mut begun: Option<(Instant, [f64; 2])> = None;
    let meanwhile = |output: &str| {
        // The record writes a snapshot when it begins, so measure from the first churn report on.
        if begun.is_none() && output.contains("churn: ") {
            begun = Some((Instant::now(), threads()?));
        }
        Ok(())
    };

    let churn = ["--churn", &seconds, "--churn-rate", &rate];
    let proxies = plane
        .proxies(sizes.churn_proxies, &churn, meanwhile)
        .await?;
    let (begun, before) = begun.context("the proxies did not report the churn")?;
    let after = threads()?;
    let elapsed = begun.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    let percent = |at: usize| 100.0 * (after[at] - before[at]) / elapsed;
    let record_thread = percent(0);

    let push_thread = percent(1);
    let history = plane.metric("navarch_push_history_bytes").await?;
    let report = proxies.end().await?;
    let moments = report["churn"]["moments"]
        .as_array()
        .context("the report of the churn has no times")?;
    let (first, last) = moments
        .first()
        .zip(moments.last())
        .context("the report of the churn has no times")?;

    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let between = |get: fn(&Value) -> &Value| number(get(last)) - number(get(first));
    let cpu =
        100.0 * between(|moment| &moment["usage"]["cpu_seconds"]) / between(|moment| &moment["at"]);

    Ok(Taken {
        cpu,
        record_thread,
        push_thread,
        rss_kb: number(&last["usage"]["rss_kb"]),
        history,
    })
}

/// CPU seconds of the threads with a name; 0 without such a thread.
fn thread_seconds(pid: u32, name: &str) -> Result<f64> {
    let mut seconds = 0.0;

    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else {
            continue;
        };

        if !stat.contains(&format!("({name})")) {
            continue;
        }

        // The name in parentheses may contain spaces and parentheses; the fields after the last
        // parenthesis are fixed.
        let fields: Vec<&str> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();

        let ticks = |at: usize| {
            fields
                .get(at)
                .and_then(|field| field.parse::<f64>().ok())
                .unwrap_or_default()
        };

        seconds += (ticks(11) + ticks(12)) / TICKS;
    }

    Ok(seconds)
}
