//! The cost of Navarch on a large cluster: seconds and CPU until it is ready, memory, and idle CPU.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use navarch_testkit::cluster::{Cluster, World};
use navarch_testkit::usage::{settle, usage};
use serde_json::{Value, json};

use crate::checkout::Checkout;
use crate::plane::{self, Idle, Started};
use crate::results::Results;

/// Number of runs per world.
const RUNS: usize = 3;

/// The idle time that is measured.
const IDLE: Duration = Duration::from_secs(20);

/// Measures the cost of reading a large cluster
///
/// Starts an API server (`make tools` installs it) with a generated mesh of two pods a service, and
/// navarch on it three times. Measured are seconds and CPU until it is ready, memory then, once it
/// no longer changes and after 20 idle seconds, and the idle CPU as a share of a core.
///
/// Prints JSON, and writes it to RESULTS/kubernetes-SERVICES.json.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    checkout: Checkout,
    #[command(flatten)]
    results: Results,
    /// Services of each measured mesh
    #[arg(default_values_t = [5_000_usize, 50_000])]
    services: Vec<usize>,
}

impl Options {
    /// Measures all meshes, one after the other.
    ///
    /// # Errors
    /// If a measurement fails, or the results cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        for services in self.services {
            let report = measure(&self.checkout, services).await?;
            let name = format!("kubernetes-{services}");
            print!("{}", self.results.json(&name, &report)?);
        }
        Ok(())
    }
}

/// Measures one world.
async fn measure(checkout: &Checkout, services: usize) -> Result<Value> {
    let cluster = plane::cluster(checkout).await?;
    let world = World {
        services,
        pods: 2,
        rules: services / 10,
        namespaces: 50,
        ..World::default()
    };
    let objects = plane::fill(&cluster, world, Vec::new()).await?;

    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(run(checkout, &cluster).await?);
    }

    Ok(json!({"services": services, "objects": objects, "runs": runs}))
}

/// Measures one run.
async fn run(checkout: &Checkout, cluster: &Cluster) -> Result<Value> {
    let Started {
        navarch,
        ready,
        usage: at_ready,
        ..
    } = plane::start(checkout, cluster, &[]).await?;
    let pid = navarch.pid();
    let settled_after = settle(pid).await?;
    let settled = usage(pid)?;
    let Idle {
        usage: idle,
        cpu_share: idle_share,
    } = plane::idle(pid, IDLE).await?;
    navarch.stop().await?;

    Ok(json!({
        "ready_seconds": ready.as_secs_f64(), "cpu_seconds_at_ready": at_ready.cpu_seconds,
        "cpu_seconds_settled": settled.cpu_seconds, "rss_kb_at_ready": at_ready.rss_kb, "rss_kb": settled.rss_kb,
        "settled_after_seconds": settled_after, "rss_kb_after_idling": idle.rss_kb,
        "peak_rss_kb": idle.peak_kb, "idle_cpu_share": idle_share,
    }))
}
