//! `simulate`: runs simulations of the control plane, repeats one, or tells its story.

use std::num::ParseIntError;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use navarch_sim::api_server::Plant;
use navarch_sim::batch::Batch;
use navarch_sim::driver::report_line;
use navarch_sim::live_bytes::CountingAllocator;
use navarch_sim::schedule::Schedule;
use navarch_sim::simulation::{self, Options, Outcome};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A simulation takes some ten seconds.
const MAX_CPU_TIME: Duration = Duration::from_secs(150);
/// The seed of cases: it decides about the proxies, and all delays.
const SEED_OF_CASES: u64 = 1;

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
    /// Run the cases of faults that were found, each once
    Cases(Cases),
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
struct Cases {
    /// The cases; all if there is none
    only: Vec<String>,
    /// Simulations at once; one per processor if unset
    #[arg(long)]
    jobs: Option<usize>,
}

#[derive(Debug, Args)]
struct One {
    /// The seed
    seed: u64,
    /// The events that happen, by index, separated by commas; all if unset
    #[arg(long, value_parser = indices)]
    keep: Option<Indices>,
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

/// Indices of events.
#[derive(Clone, Debug)]
struct Indices(Vec<usize>);

/// Reads indices; none are an empty text.
fn indices(text: &str) -> Result<Indices, ParseIntError> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(str::parse).collect::<Result<_, _>>().map(Indices)
}

impl One {
    fn options(&self) -> Options {
        Options {
            seed: self.seed,
            case: self.case.clone(),
            keep: self.keep.as_ref().map(|Indices(indices)| indices.clone()),
            is_printed: self.story,
            plant: self.plant,
            checks_memory: self.memory,
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Seeds(seeds) => seeds.run(),
        Command::Cases(cases) => cases.run(),
        Command::One(one) => {
            fix_addresses();
            end_in_time(one.seed);
            let outcome = simulation::run(one.options())?;
            println!("{}", report_line(&outcome, cpu_time()));
            Ok(exit_code(outcome.violations.is_empty()))
        }
        Command::Shrink(one) => {
            batch(None)?.shrink_and_tell(&one.options())?;
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
        while cpu_time() < MAX_CPU_TIME {
            std::thread::sleep(Duration::from_secs(1));
        }
        println!("{}", report_line(&Outcome::endless(seed), cpu_time()));
        std::process::exit(1);
    });
}

/// The CPU time of this process, by the kernel: its clocks are simulated.
fn cpu_time() -> Duration {
    let time = |time: TimeVal| {
        let micros = time.num_microseconds();
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    };
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
        time(usage.user_time()) + time(usage.system_time())
    })
}

impl Seeds {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let of_seed = |seed| Options {
            seed,
            ..Options::default()
        };
        let simulations: Vec<Options> = numbers(&self.seeds)?.into_iter().map(of_seed).collect();
        let batch = Batch {
            repeats: !self.once,
            shrinks: !self.no_shrink,
            time: self
                .minutes
                .map(|minutes| Duration::from_secs(minutes * 60)),
            ..batch(self.jobs)?
        };
        Ok(exit_code(batch.run(&simulations)))
    }
}

impl Cases {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let named = |case: &&str| self.only.is_empty() || self.only.iter().any(|name| name == case);
        let simulations: Vec<Options> = Schedule::cases()
            .filter(named)
            .map(|case| Options {
                seed: SEED_OF_CASES,
                case: Some(case.to_owned()),
                ..Options::default()
            })
            .collect();
        if simulations.len() < self.only.len() {
            let all: Vec<&str> = Schedule::cases().collect();
            bail!("the cases are {}", all.join(", "));
        }
        Ok(exit_code(batch(self.jobs)?.run(&simulations)))
    }
}

/// Simulations with this program, each once.
fn batch(jobs: Option<usize>) -> anyhow::Result<Batch> {
    let processors = || available_parallelism().ok().map(usize::from);
    Ok(Batch {
        program: std::env::current_exe()?,
        jobs: jobs.or_else(processors).unwrap_or(1),
        time: None,
        repeats: false,
        shrinks: false,
    })
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
