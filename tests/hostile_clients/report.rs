//! The effects of attacks on well-behaved clients, one row per attack, and their limits.

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

/// The maximum latency. Smaller latencies are only reported (docs/benchmarks.md): in a debug build,
/// on cores that attackers and other tests also use, they depend on the machine.
const MAX_LATENCY: Duration = Duration::from_secs(15);
/// The maximum increase of memory some time after an attack: the allocator keeps memory that one
/// thread allocated and another freed until the first thread allocates again.
const MAX_INCREASE_KB: u64 = 160 << 10;
/// The maximum increase of memory some time after the last attack.
const MAX_FINAL_INCREASE_KB: u64 = 96 << 10;
/// How long to wait until memory decreases: the memory of closed streams is freed after ten
/// seconds, or after 50 times the duration of the last clean-up.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The server is killed if it uses more, so that the machine survives.
const KILL_KB: u64 = 3 << 20;
/// How long to wait for clients after an attack. If they get no response until then, further
/// attacks are not run.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(45);
/// The interval of changes of the watched object.
const CHANGE_INTERVAL: Duration = Duration::from_millis(250);

/// The effects that an attack may have, besides the limit of latency.
#[derive(Clone, Copy)]
pub(crate) struct Expect {
    /// The port whose metrics must count rejected connections.
    pub(crate) rejected: Option<&'static str>,
    /// The maximum increase of memory during the attack.
    pub(crate) peak_kb: Option<u64>,
    /// The maximum growth of the metrics page in bytes.
    pub(crate) metrics_growth: Option<usize>,
}

impl Expect {
    /// The defaults.
    pub(crate) fn nothing() -> Self {
        Self {
            rejected: None,
            peak_kb: Some(512 << 10),
            metrics_growth: None,
        }
    }

    /// Connections must be rejected at this port.
    pub(crate) fn rejected(port: &'static str) -> Self {
        Self {
            rejected: Some(port),
            ..Self::nothing()
        }
    }
}

/// The kinds of well-behaved clients.
const SORTS: [&str; 5] = ["change", "new proxy", "pod", "certificate", "ready"];

/// The effects of one attack.
struct Row {
    attack: &'static str,
    waits: [Summary; SORTS.len()],
    memory_kb: [u64; 3],
    rejected: u64,
    note: String,
}

/// The running well-behaved clients, and the measurements.
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
    /// Starts all clients, and waits until each has got a response.
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
                sleep(CHANGE_INTERVAL).await;
                marker.change().expect("the marker can be written");
            }
        });

        clients.spawn(proxies::come(token, new));
        clients.spawn(async move {
            others::create_pods(pods)
                .await
                .expect("the well-behaved API server can connect")
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
        // Wait until all permanent streams are open.
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

    /// Measures during an attack, and after it.
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
                "{name}: clients get no response {RECOVERY_TIMEOUT:?} later\n{}\n{}",
                self.faults.join("\n"),
                self.log()
            );
        }

        let after = self.memory_within(MAX_INCREASE_KB).await?;
        self.judge_waits(name, &waits);
        let mut fault = |what: String| self.faults.push(format!("{name}: {what}"));

        if after > self.memory_kb + MAX_INCREASE_KB {
            fault(format!(
                "{after} kB are used afterwards, {} kB were used before all attacks",
                self.memory_kb
            ));
        }

        if let Some(most) = expect.peak_kb
            && peak > memory_before + most
        {
            fault(format!(
                "at most {peak} kB of memory, {memory_before} kB before"
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
                "{name}: navarch_rejected_total counts no connection at {port}"
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

    /// The latency of clients in an interval, once all requests have ended, and whether they have.
    async fn waits(&self, from: Instant, to: Instant) -> ([Summary; SORTS.len()], bool) {
        let is_settled = self.settled(to).await;
        (
            self.series
                .each_ref()
                .map(|series| series.between(from, to)),
            is_settled,
        )
    }

    /// Waits until all requests from before a moment have ended, and returns whether they have.
    async fn settled(&self, before: Instant) -> bool {
        let end = Instant::now() + RECOVERY_TIMEOUT;
        let mut all = true;
        for series in &self.series {
            all &= series.settled(before, end).await;
        }
        all
    }

    /// Records the clients that failed or exceeded the maximum latency.
    fn judge_waits(&mut self, attack: &str, waits: &[Summary; SORTS.len()]) {
        for (sort, during) in SORTS.iter().zip(waits) {
            if let Some(first) = during.failed.first() {
                self.faults.push(format!(
                    "{attack}: {sort}: {} failed, the first: {first}",
                    during.failed.len()
                ));
            }
            if during.count == 0 || during.p99 > MAX_LATENCY {
                let count = during.count;
                let now = during.p99;
                self.faults
                    .push(format!("{attack}: {sort}: p99 of {count} is {now:?}"));
            }
        }
    }

    /// The number of rejected connections at a port.
    async fn rejected(&self, port: Option<&str>) -> Result<u64> {
        let Some(port) = port else { return Ok(0) };
        rejected(&self.plane.navarch.metrics().await?, port)
    }

    /// The end of the server's log.
    fn log(&self) -> String {
        let output = self.plane.navarch.output();
        let lines: Vec<&str> = output.lines().rev().take(40).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// The memory, once it is at most `more_kb` above the value before all attacks, or after the
    /// timeout.
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

    /// Fails if a limit was exceeded.
    pub(crate) async fn judge(&mut self) -> Result<()> {
        ensure!(!self.rows.is_empty(), "NAVARCH_ATTACKS names no attack");
        let after = self.memory_within(MAX_FINAL_INCREASE_KB).await?;
        if after > self.memory_kb + MAX_FINAL_INCREASE_KB {
            self.faults.push(format!(
                "{after} kB are used after all attacks, {} kB were used before",
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

/// The number of rejected connections at a port, for any reason.
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

/// Samples the server's memory, and kills it before the machine runs out of memory.
async fn watch(pid: u32, peak_kb: Arc<AtomicU64>) {
    while let Ok(now) = usage(pid) {
        peak_kb.fetch_max(now.anon_kb, Ordering::SeqCst);
        if now.anon_kb > KILL_KB {
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
