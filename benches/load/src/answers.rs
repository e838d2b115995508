//! The cost of queries about changes: `navarch plan`, `navarch applied`, the history of pushes, and
//! the record. Quarantine is not included: it counts only proxies with an identity, which simulated
//! ones do not have.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]

mod asked;
mod churned;
mod plane;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::checkout::Checkout;
use crate::figure::Figures;
use crate::results::Results;

/// Measures the cost of queries about changes
///
/// Each part starts navarch on a directory with a generated mesh, and connects simulated Envoys to
/// it. Measured are the commands `navarch plan` and `navarch applied` from start to end, and, while
/// objects change all the time, memory and CPU of the history of pushes and CPU of `--record`, in
/// percent of a core.
///
/// Prints a table with goals, and writes it and all values to RESULTS/answers.md and
/// RESULTS/answers.json. Fails if a measurement fails; a missed goal is printed as "missed". Takes
/// some ten minutes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    checkout: Checkout,
    #[command(flatten)]
    results: Results,
    /// The parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    only: Vec<Part>,
    #[command(flatten)]
    sizes: Sizes,
}

/// The sizes of the generated meshes.
#[derive(Clone, Copy, Debug, Args)]
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
    churn_rate: u64,
    /// Seconds of churn
    #[arg(long, default_value_t = 30)]
    churn_seconds: u64,
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

impl Options {
    /// Measures the parts, and reports them.
    ///
    /// # Errors
    /// If a measurement fails, or the results cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        let Self {
            checkout,
            results,
            only,
            sizes,
        } = self;
        let mut figures = Figures::default();

        if only.contains(&Part::Plan) {
            let found = asked::plan(&checkout, &sizes).await;
            figures.add("plan", found.context("navarch plan")?);
        }

        if only.contains(&Part::Applied) {
            let found = asked::applied(&checkout, &sizes).await;
            figures.add("applied", found.context("navarch applied")?);
        }

        if only.contains(&Part::History) || only.contains(&Part::Record) {
            let compared = [only.contains(&Part::History), only.contains(&Part::Record)];
            let found = churned::measure(&checkout, &sizes, compared).await;
            figures.add("churn", found.context("under changes all the time")?);
        }

        figures.report(&results, "answers")
    }
}
