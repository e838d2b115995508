//! What attacks did to others: a row each, and what is too much.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use navarch_testkit::usage::usage;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::attack::Attack;
use crate::others;
use crate::plane::Plane;
use crate::proxies::{self, Marker, PROXIES};
use crate::series::{Series, Summary};

/// A client that waits longer starves. Shorter waits are for the table and docs/benchmarks.md: in a
/// debug build, on cores that attackers and other tests use as well, they depend on the machine.
const STARVED: Duration = Duration::from_secs(15);
/// How much more memory than before all attacks may be held some time after one: the allocator
/// keeps what one thread allocated and another freed until the first comes to it.
const KEPT_KB: u64 = 160 << 10;
/// The same some time after the last.
const LEFT_KB: u64 = 96 << 10;
/// How long memory is waited for: what ended streams needed is freed after ten seconds, or 50 times
/// what the last freeing took.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Beyond this the server is killed, so that the machine survives.
const MOST_KB: u64 = 3 << 20;
/// How long clients are waited for after an attack; if they have no answer then, there is no point
/// in further attacks.
const RECOVERED: Duration = Duration::from_secs(45);
/// How often the marker changes.
const CHANGES: Duration = Duration::from_millis(250);

/// What an attack may do, beside the waits that are the same for all.
#[derive(Clone, Copy)]
pub(crate) struct Expect {
    /// The port that counts who was turned away.
    pub(crate) rejected: Option<&'static str>,
    /// How much more memory than before there may be at the most.
    pub(crate) peak_kb: Option<u64>,
    /// By how many bytes the page of metrics may grow.
    pub(crate) metrics_growth: Option<usize>,
}

impl Expect {
    /// Nothing special.
    pub(crate) fn nothing() -> Self {
        Self {
            rejected: None,
            peak_kb: Some(512 << 10),
            metrics_growth: None,
        }
    }

    /// Somebody is turned away at this port.
    pub(crate) fn rejected(port: &'static str) -> Self {
        Self {
            rejected: Some(port),
            ..Self::nothing()
        }
    }
}

/// The sorts of well-behaved clients.
const SORTS: [&str; 5] = ["change", "new proxy", "pod", "certificate", "ready"];

/// One attack and its effect.
struct Row {
    attack: &'static str,
    waits: [Summary; SORTS.len()],
    memory_kb: [u64; 3],
    rejected: u64,
    note: String,
}

/// Well-behaved clients at work, and what was measured of them.
pub(crate) struct Report {
    plane: Arc<Plane>,
    series: [Arc<Series>; SORTS.len()],
    peak_kb: Arc<AtomicU64>,
    before: Option<[Summary; SORTS.len()]>,
    memory_kb: u64,
    rows: Vec<Row>,
    faults: Vec<String>,
    _clients: JoinSet<()>,
}

impl Report {
    /// Starts all clients, and waits until each has been served.
    pub(crate) async fn start(plane: Arc<Plane>) -> Result<Self> {
        let series: [Arc<Series>; SORTS.len()] = Default::default();
        let [changes, new, pods, certificates, ready] = series.clone();
        let mut clients = JoinSet::new();
        others::injection_is_on().await?;
        let token = plane.issuer.token(json!({}));
        let marker = Arc::new(Marker::new(&plane, changes));
        marker.change()?;
        for number in 0..PROXIES {
            clients.spawn(proxies::stay(number, token.clone(), marker.clone()));
        }

        clients.spawn(async move {
            loop {
                sleep(CHANGES).await;
                marker.change().expect("the marker can be written");
            }
        });

        clients.spawn(proxies::come(token, new));
        clients.spawn(async move {
            others::create_pods(pods)
                .await
                .expect("pods can be created")
        });
        let signing = plane.clone();
        clients.spawn(async move {
            others::sign(&signing.issuer, certificates)
                .await
                .expect("a request")
        });

        clients.spawn(others::probe(ready));
        let peak_kb = Arc::new(AtomicU64::new(0));
        clients.spawn(watch(plane.navarch.pid(), peak_kb.clone()));
        Ok(Self {
            plane,
            series,
            peak_kb,
            before: None,
            memory_kb: 0,
            rows: Vec::new(),
            faults: Vec::new(),
            _clients: clients,
        })
    }

    /// Measures without an attack.
    pub(crate) async fn before(&mut self, time: Duration) -> Result<()> {
        // The streams open first, all at once.
        sleep(Duration::from_secs(1)).await;
        ensure!(
            self.settled(Instant::now()).await,
            "not all clients are served:\n{}",
            self.log()
        );
        let from = Instant::now();

        sleep(time).await;
        let (before, _) = self.waits(from, Instant::now()).await;
        for (sort, wait) in SORTS.iter().zip(&before) {
            ensure!(
                wait.count > 0 && wait.failed.is_empty(),
                "{sort} without an attack: {wait:?}\n{}",
                self.log()
            );
        }

        self.before = Some(before);
        self.memory_kb = usage(self.plane.navarch.pid())?.anon_kb;
        Ok(())
    }

    /// Measures while an attack lasts, and after it.
    pub(crate) async fn during<F>(
        &mut self,
        name: &'static str,
        expect: Expect,
        attack: impl FnOnce() -> F + Send + 'static,
    ) -> Result<()>
    where
        F: Future<Output = Result<String>>,
    {
        if std::env::var("NAVARCH_ATTACKS")
            .is_ok_and(|some| !some.split(',').any(|one| name.starts_with(one)))
        {
            return Ok(());
        }
        let pid = self.plane.navarch.pid();
        let memory_before = usage(pid)?.anon_kb;
        let rejected = self.rejected(expect.rejected).await?;

        let page = self.plane.navarch.metrics().await?.len();
        self.peak_kb.store(memory_before, Ordering::SeqCst);
        let from = Instant::now();
        let outcome = Attack::start(attack).end().await;
        let (waits, is_settled) = self.waits(from, Instant::now()).await;
        let peak = self.peak_kb.load(Ordering::SeqCst);

        if !is_settled {
            self.rows.push(Row {
                attack: name,
                waits,
                memory_kb: [memory_before, peak, 0],
                rejected: 0,
                note: String::new(),
            });
            self.print();
            bail!(
                "{name}: clients have no answer {RECOVERED:?} later\n{}\n{}",
                self.faults.join("\n"),
                self.log()
            );
        }

        let after = self.memory_within(KEPT_KB).await?;
        self.judge_waits(name, &waits);
        let mut fault = |what: String| self.faults.push(format!("{name}: {what}"));

        if after > self.memory_kb + KEPT_KB {
            fault(format!(
                "{after} kB are left of memory, {} kB were used before all attacks",
                self.memory_kb
            ));
        }

        if let Some(most) = expect.peak_kb
            && peak > memory_before + most
        {
            fault(format!(
                "{peak} kB of memory at the most, {memory_before} kB before"
            ));
        }

        let grown = self
            .plane
            .navarch
            .metrics()
            .await?
            .len()
            .saturating_sub(page);

        if let Some(most) = expect.metrics_growth
            && grown > most
        {
            fault(format!("/metrics has {grown} bytes more"));
        }
        let note = outcome.unwrap_or_else(|error| {
            fault(format!("the attack itself failed: {error:#}"));
            String::new()
        });

        let rejected = self
            .rejected(expect.rejected)
            .await?
            .saturating_sub(rejected);
        if let (Some(port), 0) = (expect.rejected, rejected) {
            self.faults.push(format!(
                "{name}: navarch_rejected_total counts nobody at {port}"
            ));
        }

        self.rows.push(Row {
            attack: name,
            waits,
            memory_kb: [memory_before, peak, after],
            rejected,
            note,
        });

        Ok(())
    }

    /// What the clients met with in some time, once all is answered.
    async fn waits(&self, from: Instant, to: Instant) -> ([Summary; SORTS.len()], bool) {
        let is_settled = self.settled(to).await;
        (
            self.series
                .each_ref()
                .map(|series| series.between(from, to)),
            is_settled,
        )
    }

    /// Waits until all is answered; whether it is.
    async fn settled(&self, before: Instant) -> bool {
        let end = Instant::now() + RECOVERED;
        let mut all = true;
        for series in &self.series {
            all &= series.settled(before, end).await;
        }
        all
    }

    /// Notes the clients that failed, and those that starved.
    fn judge_waits(&mut self, attack: &str, waits: &[Summary; SORTS.len()]) {
        for (sort, during) in SORTS.iter().zip(waits) {
            if let Some(first) = during.failed.first() {
                self.faults.push(format!(
                    "{attack}: {sort}: {} failed, the first: {first}",
                    during.failed.len()
                ));
            }
            if during.count == 0 || during.p99 > STARVED {
                let count = during.count;
                let now = during.p99;
                self.faults
                    .push(format!("{attack}: {sort}: p99 of {count} is {now:?}"));
            }
        }
    }

    /// How many were turned away at a port.
    async fn rejected(&self, port: Option<&str>) -> Result<u64> {
        let Some(port) = port else { return Ok(0) };
        rejected(&self.plane.navarch.metrics().await?, port)
    }

    /// The last of the server's log.
    fn log(&self) -> String {
        let output = self.plane.navarch.output();
        let lines: Vec<&str> = output.lines().rev().take(40).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// The memory, once it is no more than `more_kb` above what it was before all attacks, or does
    /// not become so in time.
    async fn memory_within(&self, more_kb: u64) -> Result<u64> {
        let end = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let now = usage(self.plane.navarch.pid())?.anon_kb;
            if now <= self.memory_kb + more_kb || Instant::now() >= end {
                return Ok(now);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let mut table = format!(
            "| attack | {} | anonymous memory MiB before, peak, after | rejected | note |\n",
            SORTS.join(" | ")
        );
        writeln!(table, "|{}", " --- |".repeat(SORTS.len() + 4)).unwrap();
        let cells = |waits: &[Summary]| {
            let cells = waits.iter().map(|wait| match wait.failed.len() {
                0 => format!("{} ms", wait.p99.as_millis()),
                failed => format!("{} ms, {failed} failed", wait.p99.as_millis()),
            });
            cells.collect::<Vec<_>>().join(" | ")
        };

        let before = self
            .before
            .as_ref()
            .map(|before| cells(before))
            .unwrap_or_default();

        writeln!(
            table,
            "| none | {before} | {} | | p99 of each |",
            self.memory_kb >> 10
        )
        .unwrap();

        for Row {
            attack,
            waits,
            memory_kb,
            rejected,
            note,
        } in &self.rows
        {
            let [before, peak, after] = memory_kb.map(|kb| kb >> 10);
            let waits = cells(waits);
            writeln!(
                table,
                "| {attack} | {waits} | {before}, {peak}, {after} | {rejected} | {note} |"
            )
            .unwrap();
        }

        println!("{table}");
    }

    /// Fails when there was too much of anything.
    pub(crate) async fn judge(&mut self) -> Result<()> {
        ensure!(!self.rows.is_empty(), "NAVARCH_ATTACKS names no attack");
        let after = self.memory_within(LEFT_KB).await?;
        if after > self.memory_kb + LEFT_KB {
            self.faults.push(format!(
                "{after} kB are left after all attacks, {} kB were used before",
                self.memory_kb
            ));
        }
        ensure!(
            self.faults.is_empty(),
            "{}\n{}",
            self.faults.join("\n"),
            self.log()
        );
        Ok(())
    }
}

/// How many were turned away at a port, for any reason.
pub(crate) fn rejected(metrics: &str, port: &str) -> Result<u64> {
    let label = format!("port=\"{port}\"");
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("navarch_rejected_total{") && line.contains(&label));
    lines
        .map(|line| {
            line.rsplit(' ')
                .next()
                .unwrap_or_default()
                .parse::<u64>()
                .context("a count")
        })
        .sum()
}

/// Follows the memory of the server, and kills it before the machine runs out of it.
async fn watch(pid: u32, peak_kb: Arc<AtomicU64>) {
    while let Ok(now) = usage(pid) {
        peak_kb.fetch_max(now.anon_kb, Ordering::SeqCst);
        if now.anon_kb > MOST_KB {
            println!("killed with {} kB", now.anon_kb);
            drop(
                std::process::Command::new("kill")
                    .args(["-KILL", &pid.to_string()])
                    .status(),
            );
        }
        sleep(Duration::from_millis(20)).await;
    }
}
