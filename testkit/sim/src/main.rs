//! `simulate`: runs simulations of the control plane, repeats one, or tells its story.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use navarch_sim::api_server::Plant;
use navarch_sim::driver::{self, Report, report_line};
use navarch_sim::live_bytes::CountingAllocator;
use navarch_sim::proxy::Spec;
use navarch_sim::schedule::Schedule;
use navarch_sim::shrink::shrink;
use navarch_sim::simulation::{self, Options, Outcome};
use navarch_sim::world;
use nix::sys::resource::{UsageWho, getrusage};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A simulation takes some ten seconds.
const MAX_CPU_SECONDS: i64 = 150;

/// Run the control plane under deterministic simulation
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many seeds, each twice; shrink and tell those that fail
    Seeds(Seeds),
    /// Run one seed in this process, and report the outcome
    One(One),
    /// Find the events that a failing seed needs
    Shrink(One),
}

#[derive(Debug, Args)]
struct Seeds {
    /// The seeds: numbers and ranges such as 1-100, separated by commas
    #[arg(default_value = "1-20")]
    seeds: String,
    /// Begin no further seed after this many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Simulations at once; one per processor if unset
    #[arg(long)]
    jobs: Option<usize>,
    /// Run each seed once, without a check that it repeats
    #[arg(long)]
    once: bool,
    /// Do not shrink the seeds that fail
    #[arg(long)]
    no_shrink: bool,
}

#[derive(Debug, Args)]
struct One {
    /// The seed
    seed: u64,
    /// The events that happen, by index, separated by commas; all if unset
    #[arg(long, value_delimiter = ',')]
    keep: Option<Vec<usize>>,
    /// A case of a fault that was found, in place of the seed's schedule
    #[arg(long)]
    case: Option<String>,
    /// Print the story while it happens
    #[arg(long)]
    story: bool,
    /// A fault of the simulated API server itself, which must be found
    #[arg(long)]
    plant: Option<Plant>,
    /// At rest, let the same objects come and go, and compare the memory
    #[arg(long)]
    memory: bool,
}

impl One {
    fn options(&self) -> Options {
        Options {
            seed: self.seed,
            case: self.case.clone(),
            keep: self.keep.clone(),
            is_printed: self.story,
            plant: self.plant,
            checks_memory: self.memory,
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Seeds(seeds) => seeds.run(),
        Command::One(one) => {
            fix_addresses();
            end_in_time(one.seed);
            let outcome = simulation::run(one.options())?;
            println!("{}", report_line(&outcome));
            Ok(exit_code(outcome.violations.is_empty()))
        }
        Command::Shrink(one) => {
            shrink_and_tell(&std::env::current_exe()?, &one.options())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn exit_code(holds: bool) -> ExitCode {
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Starts the program again without random addresses, on which hashes of tables depend. Where a
/// sandbox does not permit that, the simulation runs with random ones.
fn fix_addresses() {
    if navarch_sim::stop_randomizing_addresses()
        && let Ok(program) = std::env::current_exe()
    {
        // It only returns if it fails.
        let error = std::process::Command::new(program)
            .args(std::env::args_os().skip(1))
            .exec();
        eprintln!("failed to start again: {error}");
    }
}

/// Ends the process with a violation if the simulation does not end: simulated time may stand still
/// while tasks wake each other. Its CPU time counts, as the machine may be busy; the sleep is real.
fn end_in_time(seed: u64) {
    std::thread::spawn(move || {
        while cpu_seconds() < MAX_CPU_SECONDS {
            std::thread::sleep(Duration::from_secs(1));
        }
        println!("{}", report_line(&Outcome::endless(seed)));
        std::process::exit(1);
    });
}

/// The CPU time of this process, by the kernel: its clocks are simulated.
fn cpu_seconds() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        usage.user_time().tv_sec() + usage.system_time().tv_sec()
    })
}

/// The totals of all seeds.
#[derive(Debug, Default)]
struct Totals {
    next: AtomicU64,
    runs: AtomicU64,
    simulated_seconds: AtomicU64,
    responses: AtomicU64,
    has_failed: AtomicBool,
}

impl Seeds {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let seeds = numbers(&self.seeds)?;
        let program = std::env::current_exe()?;
        let jobs = self
            .jobs
            .or_else(|| available_parallelism().ok().map(usize::from))
            .unwrap_or(1);
        let totals = Totals::default();
        #[expect(clippy::disallowed_methods, reason = "the time of the real machine")]
        let begin = Instant::now();
        let end = self
            .minutes
            .map(|minutes| Duration::from_secs(minutes * 60));

        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while end.is_none_or(|end| begin.elapsed() < end) {
                        let next = totals.next.fetch_add(1, Ordering::Relaxed);
                        let index = usize::try_from(next).unwrap_or(usize::MAX);
                        let Some(seed) = seeds.get(index) else {
                            return;
                        };
                        if let Err(error) = self.run_seed(&program, *seed, &totals) {
                            totals.has_failed.store(true, Ordering::Relaxed);
                            println!("seed {seed}: {error:#}");
                        }
                    }
                });
            }
        });

        let of = |total: &AtomicU64| total.load(Ordering::Relaxed);
        println!(
            "{} simulations, {:.1} simulated hours, {} responses, in {:.1} minutes",
            of(&totals.runs),
            Duration::from_secs(of(&totals.simulated_seconds)).as_secs_f64() / 3600.0,
            of(&totals.responses),
            begin.elapsed().as_secs_f64() / 60.0,
        );
        Ok(exit_code(!totals.has_failed.load(Ordering::Relaxed)))
    }

    /// Runs a seed, and once more if it must repeat.
    fn run_seed(&self, program: &Path, seed: u64, totals: &Totals) -> anyhow::Result<()> {
        let options = Options {
            seed,
            ..Options::default()
        };
        let report = driver::run(program, &options)?;
        totals.add(&report);
        if !report.holds() {
            totals.has_failed.store(true, Ordering::Relaxed);
            println!("seed {seed} fails: {}", report.violations.join("\n    "));
            if !self.no_shrink {
                shrink_and_tell(program, &options)?;
            }
            return Ok(());
        }
        if !self.once {
            let again = driver::run(program, &options)?;
            totals.add(&again);
            if again != report {
                bail!("does not repeat: {report:?}, then {again:?}");
            }
        }
        Ok(())
    }
}

impl Totals {
    fn add(&self, report: &Report) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.simulated_seconds
            .fetch_add(report.simulated.as_secs(), Ordering::Relaxed);
        self.responses
            .fetch_add(report.responses, Ordering::Relaxed);
    }
}

/// Drops events from a failing schedule, and prints what is left, and how to see it happen.
fn shrink_and_tell(program: &Path, options: &Options) -> anyhow::Result<()> {
    let whole = driver::run(program, options)?;
    if whole.holds() {
        bail!("seed {} does not fail", options.seed);
    }
    let keep = shrink(whole.events, |keep| {
        let options = Options {
            keep: Some(keep.to_vec()),
            ..options.clone()
        };
        driver::run(program, &options).is_ok_and(|report| report.invariant() == whole.invariant())
    });

    let specs: Vec<Spec> = world::proxies(options.seed);
    let schedule = Schedule::of_seed(options.seed, specs.len()).keep(&keep);
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

/// The numbers of a text such as `1-3,7`.
fn numbers(text: &str) -> anyhow::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.trim()
                .parse::<u64>()
                .with_context(|| format!("{part:?} is neither a number nor a range"))
        };
        numbers.extend(number(first)?..=number(last)?);
    }
    Ok(numbers)
}
