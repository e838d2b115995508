//! A mesh of many workloads and its ztunnels: first sync, an added pod, a reconnect, memory.

use anyhow::{Context, Result};
use bytes::Bytes;
use navarch_testkit::cluster::Writer;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Sizes;
use super::connect::{PODS, Synced, all_sent, connect, start, world};
use super::ztunnel::{Ztunnel, held};
use crate::checkout::Checkout;
use crate::distribution::median;
use crate::figure::{Figure, Found};
use crate::plane::{Started, at_rest, cluster, fill};
use crate::units::{megabytes, millis};

/// ztunnels that reconnect one at a time.
const ALONE: usize = 10;

/// What one run of the mesh has cost, from the start to the last reconnect.
struct Measured {
    sizes: Sizes,
    /// Resident memory in kB: without objects, when ready, with all ztunnels, at the end; and the
    /// peak.
    rss: [u64; 5],
    first: Synced,
    added: Vec<Value>,
    /// The ztunnels that reconnected one at a time.
    alone: Vec<Synced>,
    /// The ztunnels that reconnected all at once.
    back: Synced,
    /// Size in bytes of the `initial_resource_versions` of a ztunnel that reconnects.
    held: usize,
}

/// Measures first sync, added pods, reconnects and memory, one after the other on one mesh.
///
/// # Errors
/// If a measurement fails.
pub(crate) async fn measure(checkout: &Checkout, sizes: &Sizes) -> Result<Found> {
    let cluster = cluster(checkout).await?;
    let empty = start(checkout, &cluster).await?;
    let without = at_rest(&empty.navarch).await?;
    empty.navarch.stop().await?;
    let world = world(sizes.services);
    fill(&cluster, world, Vec::new()).await?;
    let Started { navarch, .. } = start(checkout, &cluster).await?;
    let ready = at_rest(&navarch).await?;

    let (mut ztunnels, first) = connect(
        &navarch,
        sizes.ztunnels,
        &Bytes::new(),
        world.services * (1 + PODS),
    )
    .await?;
    let synced = at_rest(&navarch).await?;
    let writer = cluster.writer().await?;
    let mut added = Vec::new();
    for number in 0..sizes.added {
        added.push(add(&writer, &mut ztunnels, number).await?);
    }

    let held = held(ztunnels.first().context("no ztunnel")?.versions());
    drop(ztunnels);
    let mut alone = Vec::new();
    for _ in 0..ALONE {
        alone.push(connect(&navarch, 1, &held, 0).await?.1);
    }

    let back = connect(&navarch, sizes.ztunnels, &held, 0).await?.1;
    let end = at_rest(&navarch).await?;
    navarch.stop().await?;
    let rss = [
        without.rss_kb,
        ready.rss_kb,
        synced.rss_kb,
        end.rss_kb,
        end.peak_kb,
    ];

    let measured = Measured {
        sizes: *sizes,
        rss,
        first,
        added,
        alone,
        back,
        held: held.len(),
    };

    Ok(Found {
        figures: measured.figures(),
        detail: measured.detail(),
    })
}

impl Measured {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and bytes are far below 2^52"
    )]
    fn figures(&self) -> Vec<Figure> {
        let Self {
            sizes,
            rss: [without, _, synced, ..],
            first,
            added,
            alone,
            back,
            ..
        } = self;

        let count = sizes.ztunnels;
        let workloads = sizes.services * PODS;
        let each = |synced: &Synced| synced.cpu_seconds * 1e3 / count as f64;
        let own = synced.saturating_sub(*without) as f64 * 1024.0 / workloads as f64;
        let column = |field: &str| {
            median(
                added
                    .iter()
                    .filter_map(|one| one.get(field)?.as_f64())
                    .collect(),
            )
        };

        let took = median(alone.iter().map(|back| millis(back.last)).collect());
        let mean_ms =
            |of: fn(&Synced) -> f64| alone.iter().map(of).sum::<f64>() * 1e3 / alone.len() as f64;
        let cpu = mean_ms(|back| back.cpu_seconds);
        let sending = mean_ms(|back| back.sending_seconds);
        let share = back.bytes as f64 / first.bytes as f64 * 100.0;

        vec![
            Figure::beside(
                format!("first sync of {workloads} workloads to {count} ztunnels"),
                first.last.as_secs_f64(),
                "s",
            ),
            Figure::beside("… CPU each", each(first), "ms"),
            Figure::beside("… bytes each", first.bytes as f64 / 1e6, "MB"),
            Figure::with_goal(
                "memory of each workload, all ztunnels in sync",
                own,
                "bytes",
                2000.0,
            ),
            Figure::with_goal(
                "a pod added, from the response of the API server until all have it",
                column("answered_ms"),
                "ms",
                10.0,
            ),
            Figure::beside(
                "… from the request to the API server",
                column("asked_ms"),
                "ms",
            ),
            Figure::beside(
                "one ztunnel reconnects with its resources, from the connection to the response",
                took,
                "ms",
            ),
            Figure::with_goal(
                "… of which the response is computed and sent",
                sending,
                "ms",
                12.0,
            ),
            Figure::beside("… CPU, most of it to read its versions", cpu, "ms"),
            Figure::with_goal("… bytes, of those of the first sync", share, "%", 1.0),
            Figure::beside(
                format!("all {count} reconnect at once"),
                back.last.as_secs_f64(),
                "s",
            ),
            Figure::beside("… CPU each", each(back), "ms"),
            Figure::with_goal(
                "… sending each",
                back.sending_seconds * 1e3 / count as f64,
                "ms",
                12.0,
            ),
        ]
    }

    fn detail(&self) -> Value {
        let [empty, ready, synced, end, peak] = self.rss.map(megabytes);
        let alone = |of: fn(&Synced) -> f64| self.alone.iter().map(of).collect::<Vec<_>>();
        json!({
            "rss_mb": { "empty": empty, "ready": ready, "synced": synced, "in_the_end": end, "peak": peak },
            "added": self.added, "held_bytes": self.held, "back_bytes": self.back.bytes,
            "alone_ms": alone(|back| millis(back.last)), "alone_cpu_ms": alone(|back| back.cpu_seconds * 1e3),
        })
    }
}

/// Adds a pod. Returns the milliseconds until all ztunnels have it, from the request that sets its
/// address, and from the API server's response to that request.
async fn add(writer: &Writer, ztunnels: &mut [Ztunnel], number: usize) -> Result<Value> {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("added-{number}"), "namespace": "ns0", "labels": { "app": "added" },
            "annotations": { "ambient.istio.io/redirection": "enabled" },
        },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "app", "image": "registry.example.com/team/app:1.2.3" }] },
    });

    writer.put(&pod).await?;
    let status = json!({
        "phase": "Running", "podIP": format!("10.240.0.{number}"), "podIPs": [{ "ip": format!("10.240.0.{number}") }],
        "conditions": [{ "type": "Ready", "status": "True" }],
    });
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("status".to_owned(), status);
    }

    let requested_at = Instant::now();
    let (put, last) = tokio::join!(
        async { writer.put_status(&pod).await.map(|()| Instant::now()) },
        all_sent(ztunnels, 1)
    );
    let answered = put?;
    let last = last?;

    Ok(json!({
        "asked_ms": millis(last - requested_at), "answered_ms": millis(last.saturating_duration_since(answered)),
    }))
}
