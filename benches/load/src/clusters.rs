//! Measures the cost of remote clusters: they are added one by one; seconds until served, CPU,
//! memory, and idle CPU.
//!
//! `clusterload NAVARCH ROOT RESULTS [CLUSTERS [SERVICES [PODS]]]`: the program, the checkout, a
//! directory for the result, the number of clusters, and the number of services and of pods per
//! service of each; defaults 10, 300 and
//! 14. Each cluster is an API server; services have the same names in all clusters, so with the
//!     last one they have
//! 46,200 endpoints. A cluster is served when a service that only it has is counted: its initial
//! objects are published at once. Prints a table, and writes all values to `RESULTS/clusters.json`.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON that is built here adds missing fields, and reads them as null"
)]
#![expect(clippy::print_stdout, reason = "the table goes to stdout")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::{Cluster, World, Writer};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::{settle, usage};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Default numbers of clusters, services per cluster, and pods per service.
const SIZE: [usize; 3] = [10, 300, 14];
/// The goal for a remote cluster: bytes, and the share of a core when idle.
const GOAL: (f64, f64) = (15e6, 0.002);
/// The idle time that is measured after a cluster was added, and after the last one.
const IDLE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// Timeout until a cluster is served.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let mut path = || {
        args.next()
            .map(PathBuf::from)
            .context("usage: clusterload NAVARCH ROOT RESULTS [CLUSTERS]")
    };
    let program = path()?;
    let root = path()?;

    let results = path()?;
    let mut size = SIZE;
    for (number, arg) in size.iter_mut().zip(args) {
        *number = arg
            .to_string_lossy()
            .parse()
            .context("CLUSTERS, SERVICES and PODS must be numbers")?;
    }

    std::fs::create_dir_all(&results)?;
    let report = measure(&program, &root, size).await?;
    std::fs::write(
        results.join("clusters.json"),
        serde_json::to_string_pretty(&report)? + "\n",
    )?;
    print!("{}", table(&report));

    Ok(())
}

/// A cluster with its services, and one more that only it has, which shows that it is served.
async fn start(number: usize, [_, services, pods]: [usize; 3]) -> Result<Cluster> {
    let cluster = Cluster::start_with(World::cluster_config()).await?;
    cluster
        .seed(World {
            services,
            pods,
            rules: 0,
            namespaces: 10,
            number,
            ..World::default()
        })
        .await?;

    cluster.wait_seen(services).await?;
    let writer = cluster.writer().await?;
    let system =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    let own = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("only-{number}"), "namespace": "ns0"},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    });

    writer.put(&system).await?;
    writer.put(&own).await?;
    Ok(cluster)
}

/// Adds clusters one at a time.
async fn measure(program: &Path, root: &Path, size: [usize; 3]) -> Result<Value> {
    let [clusters, services, pods] = size;
    let primary = start(0, size).await?;
    primary.apply_crds(root)?;
    let mut remotes = Vec::new();

    for number in 1..=clusters {
        remotes.push(start(number, size).await?);
        eprintln!("{number} of {clusters} clusters run");
    }

    let navarch =
        Navarch::start_on_kubernetes(program, &primary.admin_kubeconfig(), &[], &[]).await?;
    let pid = navarch.pid();
    settle(pid).await?;
    let alone = idle(pid, IDLE[1]).await?;
    let writer = primary.writer().await?;
    let mut steps = Vec::new();

    for (number, remote) in (1..).zip(&remotes) {
        let step = add(&navarch, &writer, number, remote).await?;
        eprintln!("{step}");
        steps.push(step);
    }

    let all = idle(pid, IDLE[1]).await?;
    navarch.stop().await?;
    let each = |field: &str| {
        let value = |report: &Value| report[field].as_f64().unwrap_or_default();
        (value(&all) - value(&alone)) / f64::from(u32::try_from(clusters).unwrap_or(u32::MAX))
    };
    let each = json!({"rss_kb": each("rss_kb"), "idle_cpu_share": each("idle_cpu_share")});
    let size = json!({"clusters": clusters, "services": services, "endpoints": services * pods});

    Ok(
        json!({"size": size, "alone": alone, "added": steps, "all": all, "each_remote_cluster": each}),
    )
}

/// Adds a cluster, and waits until it is served and memory is stable.
async fn add(navarch: &Navarch, writer: &Writer, number: usize, remote: &Cluster) -> Result<Value> {
    let pid = navarch.pid();
    let before = services(navarch).await?;
    let used = usage(pid)?;
    let kubeconfig = std::fs::read_to_string(remote.admin_kubeconfig())?;
    let name = format!("remote-{number}");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}},
        "stringData": {&name: kubeconfig},
    });

    let begun = Instant::now();
    writer.put(&secret).await?;

    while services(navarch).await? == before {
        ensure!(
            begun.elapsed() < TIMEOUT,
            "{name} is not served after {TIMEOUT:?}"
        );
        sleep(POLL_INTERVAL).await;
    }

    let served = begun.elapsed();
    let at_served = usage(pid)?;
    settle(pid).await?;
    let mut step = idle(pid, IDLE[0]).await?;
    step["cluster"] = json!(number);
    step["served_seconds"] = json!(served.as_secs_f64());
    step["cpu_seconds_until_served"] = json!(at_served.cpu_seconds - used.cpu_seconds);
    step["rss_kb_added"] =
        json!(step["rss_kb"].as_i64().unwrap_or_default() - i64::try_from(used.rss_kb)?);

    Ok(step)
}

/// The number of known services.
async fn services(navarch: &Navarch) -> Result<u64> {
    let metrics = navarch.metrics().await?;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("pilot_services "));
    line.context("pilot_services is not among the metrics")?
        .parse()
        .context("a number")
}

/// The memory of a process, and its CPU when idle.
async fn idle(pid: u32, time: Duration) -> Result<Value> {
    let before = usage(pid)?;
    sleep(time).await;
    let after = usage(pid)?;
    let share = (after.cpu_seconds - before.cpu_seconds) / time.as_secs_f64();
    Ok(json!({"rss_kb": after.rss_kb, "peak_rss_kb": after.peak_kb, "idle_cpu_share": share}))
}

fn table(report: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let megabytes = |kilobytes: &Value| number(kilobytes) * 1024.0 / 1e6;
    let idle = |value: &Value| format!("{:.2} %", number(&value["idle_cpu_share"]) * 100.0);
    let mut text = format!(
        "{} services and {} endpoints in each cluster\n\n\
         | remote clusters | served after | CPU until then | memory | more than before | CPU while nothing happens |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        report["size"]["services"], report["size"]["endpoints"]
    );

    let alone = &report["alone"];
    text += &format!(
        "| 0 | | | {:.1} MB | | {} |\n",
        megabytes(&alone["rss_kb"]),
        idle(alone)
    );

    for step in report["added"].as_array().into_iter().flatten() {
        text += &format!(
            "| {} | {:.2} s | {:.2} s | {:.1} MB | {:.1} MB | {} |\n",
            step["cluster"],
            number(&step["served_seconds"]),
            number(&step["cpu_seconds_until_served"]),
            megabytes(&step["rss_kb"]),
            megabytes(&step["rss_kb_added"]),
            idle(step),
        );
    }

    let all = &report["all"];
    let each = &report["each_remote_cluster"];
    let (bytes, share) = GOAL;
    text + &format!(
        "| all of them, over a minute | | | {:.1} MB (peak {:.1} MB) | | {} |\n\n\
         Each remote cluster: {:.1} MB (goal {:.0} MB), {} of a core (goal {:.1} %).\n",
        megabytes(&all["rss_kb"]),
        megabytes(&all["peak_rss_kb"]),
        idle(all),
        megabytes(&each["rss_kb"]),
        bytes / 1e6,
        idle(each),
        share * 100.0,
    )
}
