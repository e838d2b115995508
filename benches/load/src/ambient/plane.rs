//! An API server with a generated mesh, a control plane in ambient mode that watches it, and its
//! ztunnels.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use navarch_testkit::cluster::{Cluster, World};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::{Usage, settle, usage};
use serde_json::Value;
use tokio::time::Instant;

use super::ztunnel::Ztunnel;

/// Pods of each service.
pub(crate) const PODS: usize = 10;
const SERVICES_PER_NAMESPACE: usize = 50;
/// How long the control plane may take until it is ready.
const SYNC_TIMEOUT: Duration = Duration::from_mins(5);
/// The environment of the control plane.
const ENVIRONMENT: [(&str, &str); 1] = [("PILOT_ENABLE_AMBIENT", "true")];

/// The programs to start.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) navarch: PathBuf,
    pub(crate) root: PathBuf,
}

/// A generated mesh of this number of services in ambient mode.
pub(crate) fn world(services: usize) -> World {
    let namespaces = services.div_ceil(SERVICES_PER_NAMESPACE);
    World {
        services,
        pods: PODS,
        namespaces,
        ambient: true,
        ..World::default()
    }
}

/// An API server with Istio's CRDs and without objects.
///
/// # Errors
/// If it does not start.
pub(crate) async fn cluster(programs: &Programs) -> Result<Cluster> {
    let cluster = Cluster::start_with(World::cluster_config()).await?;
    cluster.apply_crds(&programs.root)?;
    Ok(cluster)
}

/// Writes a mesh and further objects, and waits until the API server has them in its watch cache.
///
/// # Errors
/// If etcd rejects them.
pub(crate) async fn fill(cluster: &Cluster, world: World, more: Vec<Value>) -> Result<()> {
    let begun = Instant::now();
    let objects = cluster.seed(world).await? + cluster.seed_objects(more).await?;
    eprintln!("{objects} objects after {:?}", begun.elapsed());
    cluster.wait_seen(world.services).await
}

/// A control plane, and the cost of its start.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) navarch: Navarch,
    pub(crate) begun: Instant,
    pub(crate) ready: Duration,
    /// CPU and memory when it became ready.
    pub(crate) usage: Usage,
}

/// Starts a control plane, and waits until it is ready.
///
/// # Errors
/// If it does not become ready.
pub(crate) async fn start(programs: &Programs, cluster: &Cluster) -> Result<Started> {
    let begun = Instant::now();
    let kubeconfig = cluster.admin_kubeconfig();
    let mut navarch =
        Navarch::launch_on_kubernetes(&programs.navarch, &kubeconfig, &[], &ENVIRONMENT).await?;
    navarch.wait_ready_within(SYNC_TIMEOUT).await?;
    let ready = begun.elapsed();
    let usage = usage(navarch.pid())?;
    Ok(Started {
        navarch,
        begun,
        ready,
        usage,
    })
}

/// Connects a number of ztunnels. With `held` they send it as the versions of an earlier stream.
/// Waits until each has received `addresses`, or, if that is 0, its first response. The first
/// ztunnel stores the versions that it receives.
///
/// # Errors
/// If a stream fails.
pub(crate) async fn connect(
    navarch: &Navarch,
    count: usize,
    held: &Bytes,
    addresses: usize,
) -> Result<(Vec<Ztunnel>, Synced)> {
    let cpu = usage(navarch.pid())?.cpu_seconds;
    let sending = sending(navarch).await?;
    let begun = Instant::now();
    let mut ztunnels: Vec<_> = (0..count)
        .map(|number| Ztunnel::connect(navarch.xds, number, held.clone(), number == 0))
        .collect();
    let mut synced = Synced::default();
    for ztunnel in &mut ztunnels {
        let (at, bytes) = ztunnel.sent(addresses).await?;
        synced.last = synced.last.max(at - begun);
        synced.bytes = synced.bytes.max(bytes);
    }
    synced.cpu_seconds = usage(navarch.pid())?.cpu_seconds - cpu;
    synced.sending_seconds = self::sending(navarch).await? - sending;
    Ok((ztunnels, synced))
}

/// The total seconds so far of computing responses and sending them.
async fn sending(navarch: &Navarch) -> Result<f64> {
    let metrics = navarch.metrics().await?;
    let sums = ["pilot_xds_push_time_sum", "pilot_xds_send_time_sum"];
    let lines = metrics
        .lines()
        .filter(|line| sums.iter().any(|sum| line.starts_with(sum)));
    let values = lines.map(|line| {
        line.rsplit(' ')
            .next()
            .unwrap_or_default()
            .parse::<f64>()
            .context("the sum is not a number")
    });
    values.sum()
}

/// The cost of bringing all ztunnels into sync.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Synced {
    /// From the start of the first connection until the last ztunnel was in sync.
    pub(crate) last: Duration,
    /// The largest number of bytes that one ztunnel received.
    pub(crate) bytes: usize,
    /// CPU time of the control plane.
    pub(crate) cpu_seconds: f64,
    /// The time in which responses were computed and sent.
    pub(crate) sending_seconds: f64,
}

/// Waits until each ztunnel has received this number of addresses, and returns when the last one
/// had.
///
/// # Errors
/// If a stream fails.
pub(crate) async fn all_sent(ztunnels: &mut [Ztunnel], addresses: usize) -> Result<Instant> {
    let mut last = None;
    for ztunnel in ztunnels {
        last = last.max(Some(ztunnel.sent(addresses).await?.0));
    }
    last.context("no ztunnel")
}

/// The memory of a control plane once it no longer changes.
///
/// # Errors
/// If the process has ended.
pub(crate) async fn at_rest(navarch: &Navarch) -> Result<Usage> {
    settle(navarch.pid()).await?;
    usage(navarch.pid())
}
