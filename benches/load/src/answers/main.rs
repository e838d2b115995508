//! Measures the cost of queries about changes: `navarch plan`, `navarch applied`, the history of
//! pushes, and the record. Quarantine is not included: it counts only proxies with an identity,
//! which those of `xdsload` do not have.
//!
//! `answersload NAVARCH ROOT RESULTS`: the program, the checkout, a directory for the results. Each
//! part starts its own control plane on a directory with a generated mesh, and `xdsload`, from this
//! program's directory, as its proxies. Prints a table with goals, and writes it and all figures to
//! `RESULTS/answers.md` and `RESULTS/answers.json`. Fails if a measurement fails; a missed goal is
//! printed as "missed".

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table goes to stdout, progress to stderr"
)]

mod asked;
mod churned;
#[path = "../figure.rs"]
mod figure;
mod plane;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};

use figure::{Figure, report};
use plane::Programs;

/// Measures the cost of queries about changes.
#[derive(Debug, Parser)]
#[command(name = "answersload", version)]
struct Args {
    /// The program navarch
    navarch: PathBuf,
    /// The checkout
    root: PathBuf,
    /// The directory for the results
    results: PathBuf,
    /// The parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    only: Vec<Part>,
    #[command(flatten)]
    sizes: Sizes,
}

/// The sizes of the generated meshes.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Sizes {
    /// Services of the mesh in which a change is planned
    #[arg(long, default_value_t = 5_000)]
    plan_services: usize,
    /// Connected proxies during plans
    #[arg(long, default_value_t = 300)]
    plan_proxies: usize,
    /// Number of plans; the median counts
    #[arg(long, default_value_t = 5)]
    plans: usize,
    /// Proxies that use the object whose state is queried
    #[arg(long, default_value_t = 5_000)]
    applied_proxies: usize,
    /// Number of queries; the median counts
    #[arg(long, default_value_t = 11)]
    asks: usize,
    /// Services of the meshes of all other parts
    #[arg(long, default_value_t = 200)]
    services: usize,
    /// Proxies during churn
    #[arg(long, default_value_t = 200)]
    churn_proxies: usize,
    /// Changes per second
    #[arg(long, default_value_t = 20)]
    churn_rate: usize,
    /// Seconds of churn
    #[arg(long, default_value_t = 30)]
    churn_seconds: usize,
    /// Rounds with each of the settings; the medians count
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `navarch plan`
    Plan,
    /// `navarch applied`
    Applied,
    /// The history of pushes
    History,
    /// `--record`
    Record,
}

impl Part {
    const ALL: [Self; 4] = [Self::Plan, Self::Applied, Self::History, Self::Record];
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args {
        navarch,
        root,
        results,
        only,
        sizes,
    } = Args::parse();

    let xdsload = std::env::current_exe()?.with_file_name("xdsload");
    let programs = Programs {
        navarch,
        xdsload,
        root,
    };
    let mut figures = Vec::new();
    let mut details = json!({});
    let mut found = |part: &str, (mut of_part, detail): (Vec<Figure>, Value)| {
        eprintln!("{part}: {detail}");
        figures.append(&mut of_part);
        details[part] = detail;
    };

    if only.contains(&Part::Plan) {
        found(
            "plan",
            asked::plan(&programs, &sizes)
                .await
                .context("navarch plan")?,
        );
    }

    if only.contains(&Part::Applied) {
        found(
            "applied",
            asked::applied(&programs, &sizes)
                .await
                .context("navarch applied")?,
        );
    }

    if only.contains(&Part::History) || only.contains(&Part::Record) {
        let compared = [only.contains(&Part::History), only.contains(&Part::Record)];
        found(
            "churn",
            churned::measure(&programs, &sizes, compared)
                .await
                .context("under changes all the time")?,
        );
    }

    print!("{}", report(&results, "answers", &figures, &details)?);
    Ok(())
}
