//! A control plane in ambient mode, and ztunnels that connect to it.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use navarch_testkit::cluster::{Cluster, World};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::usage;
use tokio::time::Instant;

use super::ztunnel::Ztunnel;
use crate::checkout::Checkout;
use crate::metrics;
use crate::plane::{self, Started};

/// Pods of each service.
pub(crate) const PODS: usize = 10;
const SERVICES_PER_NAMESPACE: usize = 50;
/// The environment of the control plane.
const ENVIRONMENT: [(&str, &str); 1] = [("PILOT_ENABLE_AMBIENT", "true")];
/// The metrics of the seconds in which responses are computed, and sent.
const SENDING: [&str; 2] = ["pilot_xds_push_time_sum", "pilot_xds_send_time_sum"];

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

/// Starts a control plane in ambient mode, and waits until it is ready.
///
/// # Errors
/// If it does not become ready.
pub(crate) async fn start(checkout: &Checkout, cluster: &Cluster) -> Result<Started> {
    plane::start(checkout, cluster, &ENVIRONMENT).await
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
    let sending = metrics::sum(navarch, &SENDING).await?;
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
    synced.sending_seconds = metrics::sum(navarch, &SENDING).await? - sending;
    Ok((ztunnels, synced))
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
