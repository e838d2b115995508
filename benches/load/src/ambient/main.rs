//! Measures the cost of ambient mode on a real API server, with simulated ztunnels.
//!
//! `ambientload NAVARCH ROOT RESULTS`: the program, the checkout, a directory for the results. Each
//! part starts its own API server with a generated mesh. Prints a table with goals, and writes it
//! and all figures to `RESULTS/ambient.md` and `RESULTS/ambient.json`. Fails if a measurement
//! fails; a missed goal is printed as "missed".

#![allow(clippy::disallowed_methods, reason = "the tool spawns its own clients")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table goes to stdout, progress to stderr"
)]

#[path = "../figure.rs"]
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

/// Measures the cost of ambient mode.
#[derive(Debug, Parser)]
#[command(name = "ambientload", version)]
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
    /// Services of the mesh that is compared with istiod, with ten pods each
    #[arg(long, default_value_t = 2_000)]
    start_services: usize,
    /// Services of the mesh for the time from the start until a ztunnel is in sync, with ten pods
    /// each
    #[arg(long, default_value_t = 3_000)]
    cold_services: usize,
    /// Runs of each of these two; the median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Services of the mesh for first sync, added pods and reconnects, with ten pods each
    #[arg(long, default_value_t = 7_000)]
    services: usize,
    /// Services of the mesh with policies, with ten pods each
    #[arg(long, default_value_t = 1_000)]
    policy_services: usize,
    /// AuthorizationPolicies of that mesh
    #[arg(long, default_value_t = 500)]
    policies: usize,
    /// Pods that change in one batch in the mesh with policies
    #[arg(long, default_value_t = 1_000)]
    burst: usize,
    /// ztunnels that connect to each mesh
    #[arg(long, default_value_t = 100)]
    ztunnels: usize,
    /// Pods that are added, one at a time; the median counts
    #[arg(long, default_value_t = 20)]
    added: usize,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Seconds, CPU and memory until the control plane is ready, and until a ztunnel is in sync
    Start,
    /// First sync of all ztunnels, an added pod, a reconnect, memory per workload
    Mesh,
    /// Pods that change in one batch under many policies
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
