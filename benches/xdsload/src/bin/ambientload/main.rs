//! What ambient mode costs on a real API server, with simulated ztunnels.
//!
//! `ambientload NAVARCH ROOT RESULTS`: the program, the checkout, a folder for the result. Each
//! part starts an API server of its own with a world made to measure. Prints a table with the
//! goals, and writes it and all figures to `RESULTS/ambient.md` and `RESULTS/ambient.json`. Fails
//! when something cannot be measured; a missed goal is printed as "missed".

#![allow(clippy::disallowed_methods, reason = "the tool spawns its own clients")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table goes to stdout, progress to stderr"
)]

#[path = "../../figure.rs"]
mod figure;
mod mesh;
mod plane;
mod policies;
mod start;
mod wire;
mod ztunnel;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};

use figure::{Figure, report};
use plane::Programs;

/// Measures what ambient mode costs.
#[derive(Debug, Parser)]
#[command(name = "ambientload", version)]
struct Args {
    /// The program navarch
    navarch: PathBuf,
    /// The checkout
    root: PathBuf,
    /// The folder of the result
    results: PathBuf,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    only: Vec<Part>,
    #[command(flatten)]
    sizes: Sizes,
}

/// How much of everything there is.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Sizes {
    /// Services of the world that is read to be compared with istiod, with ten pods each
    #[arg(long, default_value_t = 2_000)]
    start_services: usize,
    /// Services of the world that a ztunnel is waited for from the start of the control plane, with
    /// ten pods each
    #[arg(long, default_value_t = 3_000)]
    cold_services: usize,
    /// How often each of these two is read; the median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Services of the mesh that is synced, with ten pods each
    #[arg(long, default_value_t = 7_000)]
    services: usize,
    /// Services of the mesh with policies, with ten pods each
    #[arg(long, default_value_t = 1_000)]
    policy_services: usize,
    /// AuthorizationPolicies of that mesh
    #[arg(long, default_value_t = 500)]
    policies: usize,
    /// Pods that change at once in the mesh with policies
    #[arg(long, default_value_t = 1_000)]
    burst: usize,
    /// ztunnels that connect to each mesh
    #[arg(long, default_value_t = 100)]
    ztunnels: usize,
    /// Pods that are added, one at a time; the median counts
    #[arg(long, default_value_t = 20)]
    added: usize,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Seconds, CPU and memory until the control plane is ready, and until a ztunnel has everything
    Start,
    /// First sync of all ztunnels, a pod added, a reconnect, memory of each workload
    Mesh,
    /// Pods that change at once under many policies
    Policies,
}

impl Part {
    const ALL: [Self; 3] = [Self::Start, Self::Mesh, Self::Policies];
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

    let programs = Programs { navarch, root };
    let mut figures = Vec::new();
    let mut details = json!({});
    let mut found = |part: &str, (mut of_part, detail): (Vec<Figure>, Value)| {
        eprintln!("{part}: {detail}");
        figures.append(&mut of_part);
        if let Some(details) = details.as_object_mut() {
            details.insert(part.to_owned(), detail);
        }
    };

    if only.contains(&Part::Start) {
        found(
            "start",
            start::measure(&programs, &sizes).await.context("start")?,
        );
    }

    if only.contains(&Part::Mesh) {
        found(
            "mesh",
            mesh::measure(&programs, &sizes).await.context("mesh")?,
        );
    }

    if only.contains(&Part::Policies) {
        found(
            "policies",
            policies::measure(&programs, &sizes)
                .await
                .context("policies")?,
        );
    }

    print!("{}", report(&results, "ambient", &figures, &details)?);
    Ok(())
}
