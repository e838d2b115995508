//! Measures the cost of Navarch on a large cluster: seconds and CPU until it is ready, memory, and
//! idle CPU.
//!
//! `kubeload NAVARCH ROOT RESULTS [SERVICES]`: the program, the checkout, a directory for results;
//! a world of 5,000 services and one of ten times as many, or one of the given number.

#![expect(clippy::print_stdout, reason = "the table goes to stdout")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use navarch_testkit::cluster::{Cluster, World};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::{settle, usage};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Number of runs per world.
const RUNS: usize = 3;

/// The idle time that is measured.
const IDLE: Duration = Duration::from_secs(20);

/// Timeout for reading the largest world.
const SYNC_TIMEOUT: Duration = Duration::from_mins(5);

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let mut path = || {
        args.next()
            .map(PathBuf::from)
            .context("usage: kubeload NAVARCH ROOT RESULTS [SERVICES]")
    };
    let program = path()?;
    let root = path()?;

    let results = path()?;
    let sizes: Vec<usize> = match args.next() {
        Some(size) => vec![
            size.to_string_lossy()
                .parse()
                .context("SERVICES must be a number")?,
        ],
        None => vec![5_000, 50_000],
    };

    std::fs::create_dir_all(&results)?;

    for services in sizes {
        let report = measure(&program, &root, services).await?;
        let file = results.join(format!("kubernetes-{services}.json"));
        std::fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")?;
        println!("{}", serde_json::to_string_pretty(&report)?);
    }

    Ok(())
}

/// Measures one world.
async fn measure(program: &Path, root: &Path, services: usize) -> Result<Value> {
    let cluster = Cluster::start_with(World::cluster_config()).await?;
    cluster.apply_crds(root)?;
    let world = World {
        services,
        pods: 2,
        rules: services / 10,
        namespaces: 50,
        ..World::default()
    };

    let begun = Instant::now();
    let objects = cluster.seed(world).await?;
    eprintln!("{objects} objects after {:?}", begun.elapsed());
    cluster.wait_seen(services).await?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(run(program, &cluster).await?);
    }

    Ok(json!({"services": services, "objects": objects, "runs": runs}))
}

/// Measures one run.
async fn run(program: &Path, cluster: &Cluster) -> Result<Value> {
    let begun = Instant::now();
    let mut navarch =
        Navarch::launch_on_kubernetes(program, &cluster.admin_kubeconfig(), &[], &[]).await?;
    let pid = navarch.pid();

    // Progress output distinguishes a long wait from a hanging one.
    let progress = async {
        loop {
            sleep(Duration::from_secs(10)).await;
            eprintln!(
                "not ready after {:?}: {:?}",
                begun.elapsed(),
                usage(pid).ok()
            );
        }
    };

    tokio::select! {
        ready = navarch.wait_ready_within(SYNC_TIMEOUT) => ready?,
        () = progress => {}
    }
    let ready = begun.elapsed();
    let at_ready = usage(pid)?;
    let settled_after = settle(pid).await?;
    let settled = usage(pid)?;

    sleep(IDLE).await;
    let idle = usage(pid)?;
    navarch.stop().await?;
    let idle_share = (idle.cpu_seconds - settled.cpu_seconds) / IDLE.as_secs_f64();

    Ok(json!({
        "ready_seconds": ready.as_secs_f64(), "cpu_seconds_at_ready": at_ready.cpu_seconds,
        "cpu_seconds_settled": settled.cpu_seconds, "rss_kb_at_ready": at_ready.rss_kb, "rss_kb": settled.rss_kb,
        "settled_after_seconds": settled_after, "rss_kb_after_idling": idle.rss_kb,
        "peak_rss_kb": idle.peak_kb, "idle_cpu_share": idle_share,
    }))
}
