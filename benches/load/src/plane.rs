//! An API server with a generated mesh, and a control plane that watches it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use navarch_testkit::cluster::{Cluster, World};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::{Usage, settle, usage};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::checkout::Checkout;

/// How long the control plane may take until it is ready.
const SYNC_TIMEOUT: Duration = Duration::from_mins(5);
/// Time between the requests for whether it is ready: each takes 90 µs of CPU of the control plane
/// that is measured.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often a control plane that is not ready is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// An API server with Istio's CRDs and without objects, and with enough addresses for the services
/// of any mesh.
///
/// # Errors
/// If it does not start.
pub(crate) async fn cluster(checkout: &Checkout) -> Result<Cluster> {
    let cluster = Cluster::start_with(World::cluster_config()).await?;
    cluster.apply_crds(&checkout.root)?;
    Ok(cluster)
}

/// Writes a mesh and further objects, and waits until the API server has them in its watch cache.
/// Returns the number of objects.
///
/// # Errors
/// If etcd rejects them.
pub(crate) async fn fill(cluster: &Cluster, world: World, more: Vec<Value>) -> Result<usize> {
    let begun = Instant::now();
    let objects = cluster.seed(world).await? + cluster.seed_objects(more).await?;
    eprintln!("{objects} objects after {:?}", begun.elapsed());
    cluster.wait_seen(world.services).await?;
    Ok(objects)
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

/// Starts a control plane with these environment variables, and waits until it is ready.
///
/// # Errors
/// If it does not become ready.
pub(crate) async fn start(
    checkout: &Checkout,
    cluster: &Cluster,
    environment: &[(&str, &str)],
) -> Result<Started> {
    start_on(checkout, &cluster.admin_kubeconfig(), &[], environment).await
}

/// Starts a control plane on the API server of a kubeconfig, with these arguments and environment
/// variables, and waits until it is ready.
///
/// # Errors
/// If it does not become ready.
pub(crate) async fn start_on(
    checkout: &Checkout,
    kubeconfig: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<Started> {
    let begun = Instant::now();
    let program = &checkout.navarch;
    let mut navarch =
        Navarch::launch_on_kubernetes(program, kubeconfig, arguments, environment).await?;
    let pid = navarch.pid();

    // Progress output distinguishes a long wait from a hanging one.
    let progress = async {
        loop {
            sleep(PROGRESS_INTERVAL).await;
            let used = usage(pid).ok();
            eprintln!("not ready after {:?}: {used:?}", begun.elapsed());
        }
    };

    tokio::select! {
        ready = navarch.wait_ready_within(SYNC_TIMEOUT, READY_POLL_INTERVAL) => ready?,
        () = progress => {}
    }

    Ok(Started {
        ready: begun.elapsed(),
        usage: usage(pid)?,
        navarch,
        begun,
    })
}

/// A process after a time without changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// At the end of that time.
    pub(crate) usage: Usage,
    /// CPU during that time, as a share of a core.
    pub(crate) cpu_share: f64,
}

/// Waits for this time, and measures a process meanwhile.
///
/// # Errors
/// If the process has ended.
pub(crate) async fn idle(pid: u32, time: Duration) -> Result<Idle> {
    let before = usage(pid)?;
    sleep(time).await;
    let usage = usage(pid)?;
    Ok(Idle {
        usage,
        cpu_share: (usage.cpu_seconds - before.cpu_seconds) / time.as_secs_f64(),
    })
}

/// CPU and memory of a control plane once its memory no longer changes.
///
/// # Errors
/// If the process has ended.
pub(crate) async fn at_rest(navarch: &Navarch) -> Result<Usage> {
    settle(navarch.pid()).await?;
    usage(navarch.pid())
}
