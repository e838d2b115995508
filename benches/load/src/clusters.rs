//! The cost of remote clusters: they are added one by one; seconds until served, CPU, memory, and
//! idle CPU.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use navarch_testkit::cluster::{Cluster, World, Writer};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::{settle, usage};
use serde::{Serialize, Serializer};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::checkout::Checkout;
use crate::results::Results;
use crate::{metrics, plane};

/// The goal for the memory of a remote cluster, in bytes.
const MEMORY_GOAL: f64 = 15e6;
/// The goal for the idle CPU of a remote cluster, as a share of a core.
const CPU_GOAL: f64 = 0.002;
/// The idle time that is measured after a cluster was added.
const IDLE: Duration = Duration::from_secs(10);
/// The idle time that is measured without remote clusters, and with all of them.
const LONG_IDLE: Duration = Duration::from_secs(60);
/// Timeout until a cluster is served.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures the cost of remote clusters
///
/// Starts an API server for each cluster (`make tools` installs it) and navarch on one more, then
/// adds the clusters one at a time. Services have the same names in all clusters: with the defaults
/// they have 46,200 endpoints with the last one. A cluster is served when a service that only it
/// has is counted, as its initial objects are published at once. Measured are the seconds and CPU
/// until then, the memory that was added, and the idle CPU as a share of a core.
///
/// Prints a table, and writes all values to RESULTS/clusters.json.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    checkout: Checkout,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    size: Size,
}

/// The size of the measured clusters.
#[derive(Clone, Copy, Debug, Args)]
struct Size {
    /// Remote clusters
    #[arg(default_value_t = 10)]
    clusters: usize,
    /// Services of each cluster
    #[arg(default_value_t = 300)]
    services: usize,
    /// Pods of each service
    #[arg(default_value_t = 14)]
    pods: usize,
}

impl Size {
    /// Endpoints of each cluster.
    fn endpoints(self) -> usize {
        self.services * self.pods
    }
}

/// The size as reports have it: with endpoints in place of pods.
fn with_endpoints<S: Serializer>(size: &Size, serializer: S) -> Result<S::Ok, S::Error> {
    let Size {
        clusters, services, ..
    } = size;
    let endpoints = size.endpoints();
    json!({ "clusters": clusters, "services": services, "endpoints": endpoints })
        .serialize(serializer)
}

/// All values of a measurement.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(serialize_with = "with_endpoints")]
    size: Size,
    /// Without remote clusters.
    alone: Idle,
    /// After each of them.
    added: Vec<Step>,
    /// With all of them.
    all: Idle,
    each_remote_cluster: Each,
}

/// The memory of the control plane, in kB, and its CPU when idle.
#[derive(Debug, Serialize)]
struct Idle {
    rss_kb: u64,
    peak_rss_kb: u64,
    /// As a share of a core.
    idle_cpu_share: f64,
}

/// The cost of adding a cluster.
#[derive(Debug, Serialize)]
struct Step {
    /// Its number, from 1.
    cluster: usize,
    served_seconds: f64,
    cpu_seconds_until_served: f64,
    rss_kb_added: i64,
    /// The control plane once its memory no longer changes.
    #[serde(flatten)]
    idle: Idle,
}

/// The mean cost of a remote cluster.
#[derive(Debug, Serialize)]
struct Each {
    rss_kb: f64,
    /// As a share of a core.
    idle_cpu_share: f64,
}

impl Options {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If a part does not start, a cluster is not served, or the result cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        let report = measure(&self.checkout, self.size).await?;
        self.results.json("clusters", &report)?;
        print!("{report}");
        Ok(())
    }
}

/// A cluster with its services, and one more that only it has, which shows that it is served.
async fn start(number: usize, size: Size) -> Result<Cluster> {
    let cluster = Cluster::start_with(World::cluster_config()).await?;
    let world = World {
        services: size.services,
        pods: size.pods,
        rules: 0,
        namespaces: 10,
        number,
        ..World::default()
    };
    plane::fill(&cluster, world, Vec::new()).await?;

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
async fn measure(checkout: &Checkout, size: Size) -> Result<Report> {
    let clusters = size.clusters;
    let primary = start(0, size).await?;
    primary.apply_crds(&checkout.root)?;
    let mut remotes = Vec::new();

    for number in 1..=clusters {
        remotes.push(start(number, size).await?);
        eprintln!("{number} of {clusters} clusters run");
    }

    let kubeconfig = primary.admin_kubeconfig();
    let navarch = Navarch::start_on_kubernetes(&checkout.navarch, &kubeconfig, &[], &[]).await?;
    let pid = navarch.pid();
    settle(pid).await?;
    let alone = idle(pid, LONG_IDLE).await?;
    let writer = primary.writer().await?;
    let mut added = Vec::new();

    for (number, remote) in (1..).zip(&remotes) {
        let step = add(&navarch, &writer, number, remote).await?;
        eprintln!("{}", json!(step));
        added.push(step);
    }

    let all = idle(pid, LONG_IDLE).await?;
    navarch.stop().await?;

    Ok(Report {
        size,
        each_remote_cluster: Each::of(&alone, &all, clusters),
        alone,
        added,
        all,
    })
}

/// Adds a cluster, and waits until it is served and memory is stable.
async fn add(navarch: &Navarch, writer: &Writer, number: usize, remote: &Cluster) -> Result<Step> {
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

    while services(navarch).await? <= before {
        ensure!(
            begun.elapsed() < TIMEOUT,
            "{name} is not served after {TIMEOUT:?}"
        );
        sleep(POLL_INTERVAL).await;
    }

    let served = begun.elapsed();
    let at_served = usage(pid)?;
    settle(pid).await?;
    let idle = idle(pid, IDLE).await?;

    Ok(Step {
        cluster: number,
        served_seconds: served.as_secs_f64(),
        cpu_seconds_until_served: at_served.cpu_seconds - used.cpu_seconds,
        rss_kb_added: i64::try_from(idle.rss_kb)? - i64::try_from(used.rss_kb)?,
        idle,
    })
}

/// The number of known services.
async fn services(navarch: &Navarch) -> Result<f64> {
    metrics::value(navarch, "pilot_services").await
}

/// The memory of a process, and its CPU when idle.
async fn idle(pid: u32, time: Duration) -> Result<Idle> {
    let plane::Idle { usage, cpu_share } = plane::idle(pid, time).await?;
    Ok(Idle {
        rss_kb: usage.rss_kb,
        peak_rss_kb: usage.peak_kb,
        idle_cpu_share: cpu_share,
    })
}

impl Each {
    /// The mean increase over a number of clusters.
    #[expect(
        clippy::cast_precision_loss,
        reason = "memory and counts are far below 2^52"
    )]
    fn of(alone: &Idle, all: &Idle, clusters: usize) -> Self {
        let clusters = clusters as f64;
        Self {
            rss_kb: (all.rss_kb as f64 - alone.rss_kb as f64) / clusters,
            idle_cpu_share: (all.idle_cpu_share - alone.idle_cpu_share) / clusters,
        }
    }
}

/// The table in Markdown.
impl Display for Report {
    #[expect(
        clippy::cast_precision_loss,
        reason = "memory of a process is far below 2^52"
    )]
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            size,
            alone,
            added,
            all,
            each_remote_cluster: each,
        } = self;
        let megabytes = |kilobytes: f64| kilobytes * 1024.0 / 1e6;
        let memory = |idle: &Idle| megabytes(idle.rss_kb as f64);
        let percent = |share: f64| format!("{:.2} %", share * 100.0);

        writeln!(
            out,
            "{} services and {} endpoints in each cluster\n\n\
             | remote clusters | served after | CPU until then | memory | more than before | CPU while nothing happens |\n\
             | --- | --- | --- | --- | --- | --- |",
            size.services,
            size.endpoints()
        )?;
        writeln!(
            out,
            "| 0 | | | {:.1} MB | | {} |",
            memory(alone),
            percent(alone.idle_cpu_share)
        )?;

        for step in added {
            writeln!(
                out,
                "| {} | {:.2} s | {:.2} s | {:.1} MB | {:.1} MB | {} |",
                step.cluster,
                step.served_seconds,
                step.cpu_seconds_until_served,
                memory(&step.idle),
                megabytes(step.rss_kb_added as f64),
                percent(step.idle.idle_cpu_share),
            )?;
        }

        writeln!(
            out,
            "| all of them, over a minute | | | {:.1} MB (peak {:.1} MB) | | {} |\n\n\
             Each remote cluster: {:.1} MB (goal {:.0} MB), {} of a core (goal {:.1} %).",
            memory(all),
            megabytes(all.peak_rss_kb as f64),
            percent(all.idle_cpu_share),
            megabytes(each.rss_kb),
            MEMORY_GOAL / 1e6,
            percent(each.idle_cpu_share),
            CPU_GOAL * 100.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_cluster_is_in_json_and_table() {
        let idle = |rss_kb, idle_cpu_share| Idle {
            rss_kb,
            peak_rss_kb: rss_kb,
            idle_cpu_share,
        };
        let alone = idle(50_000, 0.001);
        let all = idle(70_000, 0.002);
        let report = Report {
            size: Size {
                clusters: 2,
                services: 3,
                pods: 2,
            },
            each_remote_cluster: Each::of(&alone, &all, 2),
            alone,
            added: vec![Step {
                cluster: 1,
                served_seconds: 0.5,
                cpu_seconds_until_served: 0.25,
                rss_kb_added: -1_000,
                idle: idle(49_000, 0.001),
            }],
            all,
        };

        let json = json!(report);
        let size = json!({ "clusters": 2, "services": 3, "endpoints": 6 });
        assert_eq!(json["size"], size);
        assert_eq!(json["each_remote_cluster"]["rss_kb"], 10_000.0);
        assert_eq!(json["added"][0]["rss_kb"], 49_000);
        let table = report.to_string();
        let row = "| 1 | 0.50 s | 0.25 s | 50.2 MB | -1.0 MB | 0.10 % |";
        assert!(table.lines().any(|line| line == row), "{table}");
        assert!(
            table.ends_with(
                "Each remote cluster: 10.2 MB (goal 15 MB), 0.05 % of a core (goal 0.2 %).\n"
            ),
            "{table}"
        );
    }
}
