//! Pods without Kubernetes: network namespaces with iptables, the agent, a real Envoy and an application each, under a real
//! Navarch that believes the tokens of an issuer of ours.
//!
//! Needs root, iptables and Envoy; else the tests say what is missing and pass. `NAVARCH_PODS_SECONDS` is how long certificates
//! are rotated under traffic.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::too_many_lines,
    clippy::unwrap_used,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

#[path = "agent_pods/app.rs"]
mod app;
#[path = "secure/issuer.rs"]
mod issuer;
#[path = "agent_pods/net.rs"]
mod net;
#[path = "agent_pods/pod.rs"]
mod pod;
#[path = "agent_pods/sniffer.rs"]
mod sniffer;
#[path = "agent_pods/world.rs"]
mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use world::World;

/// What is never to be seen on the wire.
const SECRET: &str = "the-word-that-nobody-may-read";

/// Why the test cannot be made here; nothing if it can.
fn missing() -> Option<String> {
    if !nix::unistd::getuid().is_root() {
        return Some("it needs root, for network namespaces".to_owned());
    }
    let absent = ["ip", "iptables", "iptables-restore", "setpriv", "curl"].into_iter().find(|program| {
        let found = std::process::Command::new(program).arg("--version").output();
        found.is_err()
    });
    if let Some(program) = absent {
        return Some(format!("{program} is not installed"));
    }
    let envoy = navarch_testkit::envoy::program();
    (!envoy.exists()).then(|| format!("{} is missing: run `make tools`", envoy.display()))
}

/// The application of a pod, when this program is started as one.
#[test]
#[ignore = "it is started by the tests as the application of a pod"]
fn application() {
    if let Ok(config) = std::env::var("NAVARCH_POD_APPLICATION") {
        app::run(&config);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_talk_by_mutual_tls_through_thick_and_thin() -> Result<()> {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let mut world = World::start().await?;
    let (client, web, gateway) = (world.sidecar("client").await?, world.sidecar("web").await?, world.gateway().await?);
    for pod in [&client, &web, &gateway] {
        pod.wait_ready().await?;
    }

    // Names of the mesh and of the world are answered by the agent.
    for name in ["web.shop", "web", "web.shop.svc.cluster.local", "api.outside.example"] {
        let answer = client.app(&json!({"op": "resolve", "name": name})).await?;
        ensure!(answer["addresses"].as_array().is_some_and(|all| !all.is_empty()), "{name}: {answer}");
    }

    // Captured, identified, encrypted, allowed or not.
    let sniffer = sniffer::Sniffer::start()?;
    let answer = client.get("web.shop", &format!("/open?{SECRET}")).await?;
    ensure!(answer["status"] == 200 && answer["body"].as_str().is_some_and(|body| body.starts_with("web")), "{answer}");
    let forwarded = answer["body"].as_str().unwrap_or_default();
    ensure!(forwarded.contains("spiffe://cluster.local/ns/shop/sa/client"), "the caller's identity: {answer}");
    let answer = client.get("web.shop", &format!("/gateway-only?{SECRET}")).await?;
    ensure!(answer["status"] == 403, "the policy is enforced: {answer}");
    let seen = sniffer.stop(client.ip, web.ip, SECRET);
    ensure!(seen.frames > 0 && seen.clear == 0, "nothing in clear between the pods: {seen:?}");
    // Without a certificate nobody gets in, though the port is open.
    ensure!(world.plain(web.ip, 8080, "/open").await.is_err(), "a stranger in plain text is refused");
    // Through the gateway, as another.
    let answer = world.plain(gateway.ip, 8080, "/gateway-only").await?;
    ensure!(answer.status == 200 && answer.body.contains("sa/gateway"), "{answer:?}");

    // Kubelet's probes reach the application by way of the agent, and metrics are one page.
    let answer = world.plain(web.ip, 15020, "/app-health/app/readyz").await?;
    ensure!(answer.status == 200, "{answer:?}");
    let answer = world.plain(web.ip, 15020, "/app-health/other/readyz").await?;
    ensure!(answer.status == 400, "{answer:?}");
    let answer = world.plain(web.ip, 15020, "/stats/prometheus").await?;
    for metric in ["app_requests", "envoy_cluster_upstream_cx_total", "istio_agent_"] {
        ensure!(answer.body.contains(metric), "{metric} is missing: {}", answer.body);
    }

    // Certificates are rotated under traffic, and the control plane goes away and comes back.
    let seconds = std::env::var("NAVARCH_PODS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(24_u64);
    let first = web.certificate().await?;
    let load = json!({"op": "load", "host": "web.shop", "path": "/open", "millis": seconds * 1000});
    let (outcome, away) = tokio::join!(client.app(&load), async {
        tokio::time::sleep(Duration::from_secs(seconds / 2)).await;
        world.restart_control_plane(Duration::from_secs(3)).await
    });
    away?;
    let outcome = outcome?;
    ensure!(outcome["ok"].as_u64() > Some(100) && outcome["failed"] == json!([]), "{outcome}");
    ensure!(web.certificate().await? != first, "the certificate was rotated");
    for pod in [&client, &web] {
        pod.wait_connected().await?;
    }
    world.forbid_open()?;
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while client.get("web.shop", "/open").await?["status"] != 403 {
        ensure!(tokio::time::Instant::now() < end, "what the control plane says after its return is heard");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.allow_open()?;
    while client.get("web.shop", "/open").await?["status"] != 200 {
        ensure!(tokio::time::Instant::now() < end, "and again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // The pod ends with requests under way: each gets its answer.
    let slow = json!({"op": "many", "host": "web.shop", "path": "/open?wait=2000", "count": 8});
    let (outcome, ended) = tokio::join!(client.app(&slow), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        web.terminate(Duration::from_secs(15)).await
    });
    let outcome = outcome?;
    ensure!(outcome["ok"] == 8, "requests were lost: {outcome}");
    ensure!(ended?, "the agent ended by itself");
    for pod in [&client, &web, &gateway] {
        let log = pod.log();
        ensure!(!log.contains("PRIVATE KEY"), "no keys in logs");
    }
    Ok(())
}
