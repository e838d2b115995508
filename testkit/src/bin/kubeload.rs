//! What Navarch costs on a large cluster: seconds and CPU until it is ready, memory, and CPU while nothing happens.
//!
//! `kubeload NAVARCH ROOT RESULTS [SERVICES]`: the program, the checkout, a folder for results; a world of 5,000 services and
//! one of ten times as many, or just one of so many.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use navarch_testkit::cluster::{Cluster, ClusterConfig, World};
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How often each world is read.
const RUNS: usize = 3;

/// For how long nothing happens.
const IDLE: Duration = Duration::from_secs(20);

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
    for path in ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/pods"] {
        loop {
            let page = writer.get(&format!("{path}?limit=1&resourceVersion=0")).await?;
            let items = page.pointer("/items").and_then(Value::as_array).map_or(0, Vec::len);
            let more = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or(0);
            if items > 1 || usize::try_from(more)? + 1 >= services {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    sleep(Duration::from_secs(3)).await;
    Ok(())
}

/// Starts it once.
async fn run(program: &Path, cluster: &Cluster) -> Result<Value> {
    let begun = Instant::now();
    let navarch = Navarch::start_on_kubernetes(program, &cluster.admin_kubeconfig(), &[], &[]).await?;
    let ready = begun.elapsed();
    let cpu_ready = cpu(navarch.pid())?;
    let at_ready = memory(navarch.pid(), "VmRSS")?;
    sleep(Duration::from_secs(3)).await;
    let (cpu_settled, settled) = (cpu(navarch.pid())?, memory(navarch.pid(), "VmRSS")?);
    sleep(IDLE).await;
    let idle = (cpu(navarch.pid())? - cpu_settled) / IDLE.as_secs_f64();
    let peak = memory(navarch.pid(), "VmHWM")?;
    navarch.stop().await?;
    Ok(json!({
        "ready_seconds": ready.as_secs_f64(), "cpu_seconds_at_ready": cpu_ready, "cpu_seconds_settled": cpu_settled,
        "rss_mb_at_ready": at_ready, "rss_mb": settled, "peak_rss_mb": peak, "idle_cpu_share": idle,
    }))
}

/// The CPU time that a process has taken, in seconds.
fn cpu(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name, which may hold anything: the state is the first, user and system time the 12th and 13th.
    let fields = stat.rsplit_once(") ").context("a name")?.1.split(' ').skip(11).take(2);
    let ticks = fields.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / 100.0)
}

/// A row of a process's status, in MB.
fn memory(pid: u32, row: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(':')).context("no such row")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1000.0)
}
