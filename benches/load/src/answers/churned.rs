//! The permanent cost of queries about the past, while objects change: the history of pushes, and
//! the record.

use std::time::Duration;

use anyhow::{Context as _, Result};
use navarch_testkit::usage::thread_cpu_seconds;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Sizes;
use super::plane::{Plane, end};
use crate::checkout::Checkout;
use crate::distribution::median;
use crate::figure::{Figure, Found};
use crate::metrics;
use crate::xds::churn;
use crate::xds::target::Target;

/// The maximum size of a proxy's push history, in bytes.
const HISTORY: f64 = 2_000.0;
/// The maximum CPU of the record, in percent of a core.
const RECORD: f64 = 2.0;
/// The smallest difference between two runs that is significant, in percent of a core.
const UNSEEN: f64 = 1.0;

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

/// CPU seconds of two threads of a control plane so far.
#[derive(Clone, Copy, Debug)]
struct ThreadSeconds {
    record: f64,
    push: f64,
}

/// The runs of a measurement, with their settings.
struct Runs(Vec<(Manner, Taken)>);

/// Runs churn with each of the settings in turn.
pub(crate) async fn measure(
    checkout: &Checkout,
    sizes: &Sizes,
    [history, record]: [bool; 2],
) -> Result<Found> {
    let manners = [
        (Manner::Usual, true),
        (Manner::Forgets, history),
        (Manner::Records, record),
    ];
    let mut runs = Runs(Vec::new());

    for round in 1..=sizes.rounds {
        for (manner, _) in manners.iter().filter(|(_, is_run)| *is_run) {
            let taken = run(checkout, sizes, *manner).await?;
            eprintln!("round {round} of {}: {manner:?} {taken:?}", sizes.rounds);
            runs.0.push((*manner, taken));
        }
    }

    let churn = format!(
        "{} changes a second, {} proxies, {} s",
        sizes.churn_rate, sizes.churn_proxies, sizes.churn_seconds
    );
    let mut figures = vec![Figure::beside(
        format!(
            "CPU as it is by default ({churn}, medians of {})",
            sizes.rounds
        ),
        runs.median(Manner::Usual, |taken| taken.cpu),
        "% of a core",
    )];

    if history {
        figures.extend(runs.history(sizes.churn_proxies));
    }

    if record {
        figures.extend(runs.record());
    }

    Ok(Found {
        figures,
        detail: runs.detail(),
    })
}

impl Runs {
    /// The median of the runs with these settings.
    fn median(&self, manner: Manner, get: fn(&Taken) -> f64) -> f64 {
        let runs = self.0.iter().filter(|(other, _)| *other == manner);
        median(runs.map(|(_, taken)| get(taken)).collect())
    }

    /// By how much the median is above that of the default settings.
    fn more(&self, manner: Manner, get: fn(&Taken) -> f64) -> f64 {
        self.median(manner, get) - self.median(Manner::Usual, get)
    }

    /// The figures of the history of pushes.
    fn history(&self, proxies: usize) -> [Figure; 3] {
        let bytes = self.median(Manner::Usual, |taken| taken.history) / proxies as f64;
        let cpu = -self.more(Manner::Forgets, |taken| taken.cpu);
        let rss = -self.more(Manner::Forgets, |taken| taken.rss_kb);

        [
            Figure::with_goal(
                "history of pushes, memory a proxy (counted: `navarch_push_history_bytes`)",
                bytes,
                "bytes",
                HISTORY,
            ),
            Figure::with_goal(
                "… CPU more than with `NAVARCH_PUSH_HISTORY=0`",
                cpu,
                "% of a core",
                UNSEEN,
            ),
            Figure::beside("… resident memory more, of the process", rss, "kB"),
        ]
    }

    /// The figures of the record.
    fn record(&self) -> [Figure; 4] {
        // The CPU of all threads varies more from run to run than the record costs, so the goal is
        // for the writing thread.
        let writes = self.median(Manner::Records, |taken| taken.record_thread);
        let more = writes + self.more(Manner::Records, |taken| taken.push_thread);
        let usual = self.median(Manner::Usual, |taken| taken.cpu);
        let all = self.more(Manner::Records, |taken| taken.cpu);
        let what = "`--record`, CPU more of the threads that push and write";

        [
            Figure::with_goal(what, more, "% of a core", RECORD),
            Figure::beside(
                "… relative to the CPU of all threads without it",
                100.0 * more / usual,
                "%",
            ),
            Figure::beside("… of it the thread that writes", writes, "% of a core"),
            Figure::beside("… CPU more of all threads", all, "% of a core"),
        ]
    }

    /// All values as JSON.
    fn detail(&self) -> Value {
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
        Value::Array(self.0.iter().map(detail).collect())
    }
}

/// One run on a new control plane.
async fn run(checkout: &Checkout, sizes: &Sizes, manner: Manner) -> Result<Taken> {
    let folder = tempfile::tempdir()?;
    let record = format!("--record={}", folder.path().join("record").display());
    let (environment, args): (&[(&str, &str)], Vec<String>) = match manner {
        Manner::Usual => (&[], Vec::new()),
        Manner::Forgets => (&[("NAVARCH_PUSH_HISTORY", "0")], Vec::new()),
        Manner::Records => (&[], vec![record]),
    };
    let plane = Plane::start(checkout, sizes.services, environment, &args).await?;
    let pid = plane.navarch.pid();

    let threads = || {
        anyhow::Ok(ThreadSeconds {
            record: thread_cpu_seconds(pid, "record")?,
            push: thread_cpu_seconds(pid, "push")?,
        })
    };

    let mut proxies = plane.proxies(sizes.churn_proxies).await?;
    proxies.plan.churn = sizes.churn_seconds;
    proxies.plan.churn_rate = sizes.churn_rate;
    let mut begun = None;
    let mesh = Target::Directory(plane.mesh());
    let churned = churn::run(&proxies, &mesh, || {
        // The record writes a snapshot when it begins, so measure from the first change on.
        begun = Some((Instant::now(), threads()?));
        Ok(())
    });
    let churned = churned.await?;

    let (begun, before) = begun.context("no object was changed")?;
    let after = threads()?;
    let elapsed = begun.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    let percent = |seconds: f64| 100.0 * seconds / elapsed;
    let history = metrics::value(&plane.navarch, "navarch_push_history_bytes").await?;
    end(proxies).await?;

    let moments = &churned.moments;
    let usages = moments.first().zip(moments.last());
    let (first, last) = usages.context("the churn has no times")?;
    let (first_usage, last_usage) = first
        .usage
        .zip(last.usage)
        .context("the control plane was not measured")?;
    let cpu_seconds = last_usage.cpu_seconds - first_usage.cpu_seconds;

    Ok(Taken {
        cpu: 100.0 * cpu_seconds / (last.at - first.at),
        record_thread: percent(after.record - before.record),
        push_thread: percent(after.push - before.push),
        rss_kb: last_usage.rss_kb as f64,
        history,
    })
}
