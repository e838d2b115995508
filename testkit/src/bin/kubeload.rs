//! What Navarch costs on a large cluster: seconds and CPU until it is ready, memory, and CPU while nothing happens.
//!
//! `kubeload NAVARCH ROOT RESULTS [SERVICES]`: the program, the checkout, a folder for results; a world of 5,000 services and
//! one of ten times as many, or just one of so many.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::{Cluster, ClusterConfig, World};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::usage;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How often each world is read.
const RUNS: usize = 3;

/// For how long nothing happens.
const IDLE: Duration = Duration::from_secs(20);

/// How long the largest world may take to be read.
const SYNC_TIMEOUT: Duration = Duration::from_mins(5);

/// How long the API server may take until it has everything in its cache.
const SEEDING: Duration = Duration::from_mins(10);

/// Memory counts once it has not changed by more than a hundredth for so many seconds, or when it never rests.
const RESTS: [u32; 2] = [5, 60];

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let mut path = || args.next().map(PathBuf::from).context("usage: kubeload NAVARCH ROOT RESULTS [SERVICES]");
    let (program, root, results) = (path()?, path()?, path()?);
    let sizes: Vec<usize> = match args.next() {
        Some(size) => vec![size.to_string_lossy().parse().context("SERVICES is a number")?],
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
    let config = ClusterConfig {
        api_server_flags: vec!["--service-cluster-ip-range=10.96.0.0/12".to_owned()],
        ..ClusterConfig::default()
    };
    let cluster = Cluster::start_with(config).await?;
    cluster.apply_crds(root)?;
    let world = World { services, pods: 2, rules: services / 10, namespaces: 50 };
    let begun = Instant::now();
    let objects = cluster.seed(world).await?;
    eprintln!("{objects} objects after {:?}", begun.elapsed());
    wait_seen(&cluster, services).await?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(run(program, &cluster).await?);
    }
    Ok(json!({"services": services, "objects": objects, "runs": runs}))
}

/// Waits until the API server has everything in its cache: it is measured elsewhere.
async fn wait_seen(cluster: &Cluster, services: usize) -> Result<()> {
    let writer = cluster.writer().await?;
    let end = Instant::now() + SEEDING;
    for path in ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/pods"] {
        loop {
            let page = writer.get(&format!("{path}?limit=1&resourceVersion=0")).await?;
            let items = page.pointer("/items").and_then(Value::as_array).map_or(0, Vec::len);
            let more = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or(0);
            if items > 1 || usize::try_from(more)? + 1 >= services {
                break;
            }
            ensure!(Instant::now() < end, "the API server has {items} and {more} more of {path}, and that is not all");
            sleep(Duration::from_millis(100)).await;
        }
    }
    sleep(Duration::from_secs(3)).await;
    Ok(())
}

/// Starts it once.
async fn run(program: &Path, cluster: &Cluster) -> Result<Value> {
    let begun = Instant::now();
    let mut navarch = Navarch::launch_on_kubernetes(program, &cluster.admin_kubeconfig(), &[], &[])?;
    let pid = navarch.pid();
    // What is printed meanwhile tells a long wait from one for ever.
    let progress = async {
        loop {
            sleep(Duration::from_secs(10)).await;
            eprintln!("not ready after {:?}: {:?}", begun.elapsed(), usage(pid).ok());
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

/// Waits until the memory of a process does not change any more; gives how many seconds that took.
async fn settle(pid: u32) -> Result<u32> {
    let [needed, longest] = RESTS;
    let (mut last, mut rest) = (usage(pid)?.rss_kb, 0);
    for second in 1..=longest {
        sleep(Duration::from_secs(1)).await;
        let now = usage(pid)?.rss_kb;
        rest = if now.abs_diff(last) <= last / 100 { rest + 1 } else { 0 };
        last = now;
        if rest == needed {
            return Ok(second);
        }
    }
    Ok(longest)
}
