//! Pods that change in one batch under many policies.

use anyhow::Result;
use bytes::Bytes;
use navarch_testkit::usage::usage;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Sizes;
use super::connect::{PODS, all_sent, connect, start, world};
use crate::checkout::Checkout;
use crate::figure::{Figure, Found};
use crate::plane::{cluster, fill};

/// Measures how long a batch of changed pods takes to reach all ztunnels.
///
/// # Errors
/// If a measurement fails.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) async fn measure(checkout: &Checkout, sizes: &Sizes) -> Result<Found> {
    let world = world(sizes.policy_services);
    let cluster = cluster(checkout).await?;
    fill(
        &cluster,
        world,
        (0..sizes.policies)
            .map(|n| policy(n, sizes.policy_services))
            .collect(),
    )
    .await?;
    let started = start(checkout, &cluster).await?;
    let addresses = world.services * (1 + PODS);
    let (mut ztunnels, first) =
        connect(&started.navarch, sizes.ztunnels, &Bytes::new(), addresses).await?;
    let burst = sizes.burst.min(world.services * PODS);
    let pods: Vec<Value> = (0..burst)
        .map(|n| not_ready(world.pod(n / PODS, n % PODS)))
        .collect();

    let cpu = usage(started.navarch.pid())?.cpu_seconds;
    let begun = Instant::now();
    let (put, last) = tokio::join!(
        async { cluster.seed_objects(pods).await.map(|_| begun.elapsed()) },
        all_sent(&mut ztunnels, burst)
    );
    let put = put?;
    let last = last? - begun;

    let cpu = usage(started.navarch.pid())?.cpu_seconds - cpu;
    let what = format!(
        "{burst} of {} pods change under {} policies, until all have it",
        world.services * PODS,
        sizes.policies
    );

    let figures = vec![
        Figure::with_goal(what, last.as_secs_f64(), "s", 1.0),
        Figure::beside("… of which etcd stores them", put.as_secs_f64(), "s"),
        Figure::beside("… CPU", cpu, "s"),
        Figure::beside(
            "first sync of all, CPU each",
            first.cpu_seconds * 1e3 / sizes.ztunnels as f64,
            "ms",
        ),
    ];

    started.navarch.stop().await?;
    Ok(Found {
        figures,
        detail: json!({ "ready_seconds": started.ready.as_secs_f64(), "first_sync_seconds": first.last.as_secs_f64() }),
    })
}

/// A policy for the pods of a service.
fn policy(number: usize, services: usize) -> Value {
    let service = number % services;
    let namespaces = world(services).namespaces.max(1);
    json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": {
            "name": format!("p{number}"), "namespace": format!("ns{}", service % namespaces), "generation": 1,
            "uid": format!("policy-{number}"), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "selector": { "matchLabels": { "app": format!("svc{service}") } },
            "rules": [{ "from": [{ "source": { "namespaces": [format!("ns{number}")] } }] }],
        },
    })
}

/// The same pod, no longer ready.
fn not_ready(mut pod: Value) -> Value {
    let conditions = pod
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition.get("type").and_then(Value::as_str) == Some("Ready") {
            condition["status"] = json!("False");
        }
    }
    pod
}
