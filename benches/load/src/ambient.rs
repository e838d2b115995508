//! The cost of ambient mode on a real API server, with simulated ztunnels.

mod connect;
mod mesh;
mod policies;
mod start;
mod wire;
pub(crate) mod ztunnel;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::checkout::Checkout;
use crate::figure::{Figures, Found};
use crate::results::Results;

/// Measures the cost of ambient mode with simulated ztunnels
///
/// Each part starts its own API server (`make tools` installs it) with a generated mesh, and
/// navarch on it. Measured are seconds, CPU and memory until it is ready, the first sync of all
/// ztunnels, an added pod, reconnects, memory per workload, and pods that change in one batch under
/// many policies.
///
/// Prints a table with goals, and writes it and all values to RESULTS/ambient.md and
/// RESULTS/ambient.json. Fails if a measurement fails; a missed goal is printed as "missed". Takes
/// some five minutes.
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

    /// The name in the report.
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Mesh => "mesh",
            Self::Policies => "policies",
        }
    }
}

impl Options {
    /// Measures the parts, and reports them.
    ///
    /// # Errors
    /// If a measurement fails, or the results cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        let mut figures = Figures::default();
        for part in Part::ALL.iter().filter(|part| self.only.contains(part)) {
            let name = part.name();
            figures.add(name, self.measure(*part).await.context(name)?);
        }
        figures.report(&self.results, "ambient")
    }

    /// Measures one part.
    async fn measure(&self, part: Part) -> Result<Found> {
        let Self {
            checkout, sizes, ..
        } = self;
        match part {
            Part::Start => start::measure(checkout, sizes).await,
            Part::Mesh => mesh::measure(checkout, sizes).await,
            Part::Policies => policies::measure(checkout, sizes).await,
        }
    }
}
