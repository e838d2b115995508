//! Many simulations, some at once: those that fail are told, and what all of them took.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use parking_lot::Mutex;

use crate::driver::{self, Measured};
use crate::schedule::Schedule;
use crate::shrink::shrink;
use crate::simulation::Options;
use crate::world;

/// How simulations are run.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The program `simulate`.
    pub program: PathBuf,
    /// Simulations at once.
    pub jobs: usize,
    /// No further one begins after this time.
    pub time: Option<Duration>,
    /// Whether each is run again, and must repeat.
    pub repeats: bool,
    /// Whether the events are told that a failing seed needs.
    pub shrinks: bool,
}

/// What all simulations took.
#[derive(Debug, Default)]
pub struct Totals {
    begun: AtomicUsize,
    has_failed: AtomicBool,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    runs: usize,
    simulated: Duration,
    cpu: Duration,
    responses: u64,
    /// The hashes of the stories: of all that happened, in order.
    stories: BTreeSet<String>,
    /// The kinds of faults of the schedules, in order.
    faults: BTreeSet<Vec<String>>,
}

/// What a simulation is called: its case, or its seed.
struct Title<'a>(&'a Options);

impl Batch {
    /// Runs the simulations; prints those that fail, and the totals. Returns whether all held.
    #[must_use]
    pub fn run(&self, simulations: &[Options]) -> bool {
        let totals = Totals::default();
        #[expect(clippy::disallowed_methods, reason = "the time of the real machine")]
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while self.time.is_none_or(|time| begin.elapsed() < time) {
                        let next = totals.begun.fetch_add(1, Ordering::Relaxed);
                        let Some(options) = simulations.get(next) else {
                            return;
                        };
                        if let Err(error) = self.run_one(options, &totals) {
                            totals.has_failed.store(true, Ordering::Relaxed);
                            println!("{}: {error:#}", Title(options));
                        }
                    }
                });
            }
        });

        totals.print(begin.elapsed());
        !totals.has_failed.load(Ordering::Relaxed)
    }

    /// Runs a simulation, and once more if it must repeat.
    fn run_one(&self, options: &Options, totals: &Totals) -> anyhow::Result<()> {
        let first = driver::measure(&self.program, options)?;
        totals.add(options, &first);
        let report = first.report;
        if !report.holds() {
            totals.has_failed.store(true, Ordering::Relaxed);
            let violations = report.violations.join("\n    ");
            println!("{} fails: {violations}", Title(options));
            if self.shrinks && options.case.is_none() {
                self.shrink_and_tell(options)?;
            }
            return Ok(());
        }

        if self.repeats {
            let again = driver::measure(&self.program, options)?;
            totals.add(options, &again);
            if again.report != report {
                bail!("does not repeat: {report:?}, then {:?}", again.report);
            }
        }
        Ok(())
    }

    /// Drops events from the schedule of a failing seed, and prints what is left, and how to see it
    /// happen.
    ///
    /// # Errors
    /// If the seed does not fail, or cannot be run.
    pub fn shrink_and_tell(&self, options: &Options) -> anyhow::Result<()> {
        let whole = driver::run(&self.program, options)?;
        if whole.holds() {
            bail!("seed {} does not fail", options.seed);
        }
        let keep = shrink(whole.events, |keep| {
            let options = Options {
                keep: Some(keep.to_vec()),
                ..options.clone()
            };
            let part = driver::run(&self.program, &options);
            part.is_ok_and(|report| report.invariant() == whole.invariant())
        });

        let schedule = schedule_of(options.seed).keep(&keep);
        println!(
            "seed {} needs {} of {} events, with {} replicas:",
            options.seed,
            keep.len(),
            whole.events,
            schedule.replicas
        );
        for event in &schedule.events {
            println!("    {event}");
        }
        let keep: Vec<String> = keep.iter().map(usize::to_string).collect();
        println!(
            "its story: simulate one {} --story --keep={}",
            options.seed,
            keep.join(",")
        );
        Ok(())
    }
}

/// The schedule of a seed.
fn schedule_of(seed: u64) -> Schedule {
    Schedule::of_seed(seed, world::proxies(seed).len())
}

impl Totals {
    fn add(&self, options: &Options, measured: &Measured) {
        let schedule = match &options.case {
            Some(case) => Schedule::of_case(case),
            None => Some(schedule_of(options.seed)),
        };
        let mut sums = self.sums.lock();
        sums.runs += 1;
        sums.simulated += measured.report.simulated;
        sums.cpu += measured.cpu;
        sums.responses += measured.report.responses;
        sums.stories.insert(measured.report.hash.clone());
        sums.faults
            .extend(schedule.map(|schedule| schedule.fault_kinds()));
    }

    fn print(&self, took: Duration) {
        let sums = self.sums.lock();
        let hours = sums.simulated.as_secs_f64() / 3600.0;
        let cpu_minutes = sums.cpu.as_secs_f64() / 60.0;
        println!(
            "{} simulations, {hours:.1} simulated hours, {} responses, in {:.1} minutes",
            sums.runs,
            sums.responses,
            took.as_secs_f64() / 60.0,
        );
        println!(
            "{} distinct schedules, {} distinct orders of kinds of faults; \
             {cpu_minutes:.1} CPU-minutes, {:.2} simulated hours in each",
            sums.stories.len(),
            sums.faults.len(),
            hours / cpu_minutes,
        );
    }
}

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.case {
            Some(case) => write!(f, "case {case}"),
            None => write!(f, "seed {}", self.0.seed),
        }
    }
}
