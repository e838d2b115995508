//! Pods without kubelets: network namespaces with captured traffic, the agent, a real Envoy and an
//! application each, with a real Navarch and a real API server, which issues their tokens. A node
//! in ambient mode has a real ztunnel instead, if one is built (`NAVARCH_ZTUNNEL`).
//!
//! Needs root, iptables, Envoy and the programs of `scripts/kube`; a test that cannot run is
//! skipped with a reason (`navarch_testkit::skip`). The tests run in parallel, each in its own
//! mesh. `make soak` sets `NAVARCH_PODS_SECONDS` to five minutes, and `NAVARCH_MIGRATION_REQUESTS` to
//! 100,000.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

mod ambient;
mod cni;
mod company;
mod injected;
mod machine;
mod machine_package;
mod migration;
mod net;
mod node;
mod pod;
mod rules;
mod signer;
mod world;
mod ztunnel;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::wait::{until_some, wanted};
use navarch_tests::injection::default;
use serde_json::json;
use tokio::time::{Instant, sleep};

use pod::{Pod, PodKind};
use world::World;

/// Sent in requests; must never be visible on the wire.
const REQUEST_MARKER: &str = "the-word-that-nobody-may-read";

/// Why the tests cannot run here; `None` if they can.
fn missing() -> Option<String> {
    if !nix::unistd::getuid().is_root() {
        return Some("it needs root, for network namespaces".to_owned());
    }
    let absent = ["ip", "iptables", "iptables-restore", "setpriv", "curl"]
        .into_iter()
        .find(|program| {
            let found = std::process::Command::new(program)
                .arg("--version")
                .output();
            found.is_err()
        });
    if let Some(program) = absent {
        return Some(format!("{program} is not installed"));
    }
    let envoy = navarch_testkit::envoy::program();
    (!envoy.exists()).then(|| format!("{} is missing: run `make tools`", envoy.display()))
}

/// A pod whose iptables rules log, with certificates that outlive the control plane's outage.
const LONG: PodKind = PodKind::Sidecar {
    capture: &["--iptables-trace-logging"],
    lifetime: "10m",
};
/// The duration of the control plane's outage: longer than the agents' pause between attempts to
/// connect.
const AWAY: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_communicate_by_mutual_tls_during_rotation_and_outages() -> Result<()> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let mut world = World::start().await?;
    let client = world.pod("client", LONG).await?;
    let web = world.pod("web", LONG).await?;
    let gateway = world.pod("gateway", PodKind::Gateway).await?;
    for pod in [&client, &web, &gateway] {
        pod.wait_ready().await?;
    }

    names_are_resolved(&client).await?;
    requests_are_protected(&world, &client, &web, &gateway).await?;
    probes_and_metrics_pass_the_agent(&world, &web).await?;
    packets_are_logged(&client).await?;
    an_outage_of_the_control_plane_loses_no_request(&mut world, &client, &web, &gateway).await?;
    a_stopped_pod_answers_its_requests(&client, &web).await?;

    for pod in [&client, &web, &gateway] {
        let log = pod.log();
        ensure!(!log.contains("PRIVATE KEY"), "no keys in logs");
    }

    Ok(())
}

/// The agent answers DNS queries for names inside and outside of the mesh.
async fn names_are_resolved(client: &Pod) -> Result<()> {
    for name in [
        "web.shop",
        "web",
        "web.shop.svc.cluster.local",
        "api.outside.example",
    ] {
        let answer = client.app(&json!({"op": "resolve", "name": name})).await?;
        ensure!(
            answer["addresses"]
                .as_array()
                .is_some_and(|all| !all.is_empty()),
            "{name}: {answer}"
        );
    }

    Ok(())
}

/// Requests are captured, authenticated, encrypted, and allowed or denied.
async fn requests_are_protected(
    world: &World,
    client: &Pod,
    web: &Pod,
    gateway: &Pod,
) -> Result<()> {
    let sniffer = navarch_testkit::sniffer::Sniffer::start()?;
    let answer = client
        .get("web.shop", &format!("/open?{REQUEST_MARKER}"))
        .await?;
    ensure!(
        answer["status"] == 200
            && answer["body"]
                .as_str()
                .is_some_and(|body| body.starts_with("web")),
        "{answer}"
    );

    let forwarded = answer["body"].as_str().unwrap_or_default();
    ensure!(
        forwarded.contains("spiffe://cluster.local/ns/shop/sa/client"),
        "the server sees the caller's identity: {answer}"
    );
    let answer = client
        .get("web.shop", &format!("/gateway-only?{REQUEST_MARKER}"))
        .await?;
    ensure!(answer["status"] == 403, "the policy is enforced: {answer}");

    let seen = sniffer.stop(client.ip, web.ip, REQUEST_MARKER);
    ensure!(
        seen.frames > 0 && seen.clear == 0,
        "no plain text between the pods: {seen:?}"
    );

    // A client without a certificate is rejected although the port is open.
    ensure!(
        world.plain(web.ip, 8080, "/open").await.is_err(),
        "a plain-text client outside the mesh is rejected"
    );

    // Through the gateway, which has another identity.
    let answer = world.plain(gateway.ip, 8080, "/gateway-only").await?;
    ensure!(
        answer.status == 200 && answer.body.contains("sa/gateway"),
        "{answer:?}"
    );

    Ok(())
}

/// Kubelet's probes reach the application through the agent, which also merges the metrics into
/// one page.
async fn probes_and_metrics_pass_the_agent(world: &World, web: &Pod) -> Result<()> {
    let answer = world.plain(web.ip, 15020, "/app-health/app/readyz").await?;
    ensure!(answer.status == 200, "{answer:?}");
    let answer = world
        .plain(web.ip, 15020, "/app-health/other/readyz")
        .await?;
    ensure!(answer.status == 400, "{answer:?}");
    let answer = world.plain(web.ip, 15020, "/stats/prometheus").await?;

    for metric in [
        "app_requests",
        "envoy_cluster_upstream_cx_total",
        "istio_agent_",
    ] {
        ensure!(
            answer.body.contains(metric),
            "{metric} is missing: {}",
            answer.body
        );
    }

    Ok(())
}

/// The kernel logs packets of the rules, and the agent copies them into its log.
async fn packets_are_logged(client: &Pod) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(30);

    for logged in ["ISTIO_OUTPUT:ISTIO_REDIRECT", "ISTIO_OUTPUT_DNS:REDIRECT"] {
        while !client.log().contains(logged) {
            ensure!(
                Instant::now() < end,
                "the log has no {logged}:\n{}",
                client.log()
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    Ok(())
}

/// The control plane is stopped and restarted; no request may fail meanwhile, and later changes
/// take effect.
async fn an_outage_of_the_control_plane_loses_no_request(
    world: &mut World,
    client: &Pod,
    web: &Pod,
    gateway: &Pod,
) -> Result<()> {
    let load = json!({"op": "load", "host": "web.shop", "path": "/open", "millis": AWAY.as_millis() + 5000});
    let (outcome, away) = tokio::join!(client.app(&load), world.restart_control_plane(AWAY));
    away?;
    let outcome = outcome?;
    ensure!(
        outcome["ok"].as_u64() > Some(200) && outcome["failed"] == 0,
        "{outcome}"
    );

    for pod in [client, web, gateway] {
        pod.wait_connected().await?;
    }

    world.forbid_open().await?;
    let end = Instant::now() + Duration::from_secs(60);

    while client.get("web.shop", "/open").await?["status"] != 403 {
        ensure!(
            Instant::now() < end,
            "changes after the control plane's return take effect: {}",
            world.output()
        );
        sleep(Duration::from_millis(50)).await;
    }

    world.allow_open().await?;

    while client.get("web.shop", "/open").await?["status"] != 200 {
        ensure!(
            Instant::now() < end,
            "the second change takes effect as well: {}",
            world.output()
        );
        sleep(Duration::from_millis(50)).await;
    }

    Ok(())
}

/// The pod is stopped while requests are in flight; each must get its response.
async fn a_stopped_pod_answers_its_requests(client: &Pod, web: &Pod) -> Result<()> {
    let slow = json!({"op": "many", "host": "web.shop", "path": "/open?wait=2000", "count": 8});
    let (outcome, ended) = tokio::join!(client.app(&slow), async {
        until_some("all requests have arrived at the pod", async || {
            wanted(
                web.app(&json!({"op": "counts"})).await.unwrap_or_default(),
                |counts| counts["waiting"] == 8,
            )
        })
        .await;
        web.terminate(Duration::from_secs(15)).await
    });

    let outcome = outcome?;
    ensure!(outcome["ok"] == 8, "requests were lost: {outcome}");
    ensure!(ended?, "the agent exited by itself");

    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_a_minute_are_rotated_under_traffic() -> Result<()> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let seconds = std::env::var("NAVARCH_PODS_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(70_u64);
    let kind = PodKind::Sidecar {
        capture: captured_by(),
        lifetime: "60s",
    };

    let mut world = World::start().await?;
    let client = world.pod("client", kind).await?;
    let web = world.pod("web", kind).await?;
    for pod in [&client, &web] {
        pod.wait_ready().await?;
    }

    ensure!(
        client.get("web.shop", "/open").await?["status"] == 200,
        "they talk"
    );
    ensure!(
        world.plain(web.ip, 8080, "/open").await.is_err(),
        "a plain-text client outside the mesh is rejected"
    );

    let load = json!({"op": "load", "host": "web.shop", "path": "/open", "millis": seconds * 1000});
    let watch = async {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut seen = [BTreeSet::new(), BTreeSet::new()];

        while Instant::now() < end {
            for (pod, seen) in [&client, &web].into_iter().zip(&mut seen) {
                let certificate = pod.certificate().await?;
                let left = certificate
                    .expiry
                    .duration_since(jiff::Timestamp::now())
                    .as_secs();
                ensure!(
                    (1..=60).contains(&left),
                    "{left} seconds of a minute's validity are left"
                );
                seen.insert(certificate.serial);
            }
            sleep(Duration::from_secs(2)).await;
        }

        Ok(seen.map(|serials| serials.len()))
    };

    let (outcome, rotated) = tokio::join!(client.app(&load), watch);
    let outcome = outcome?;
    let rotated = rotated?;
    ensure!(
        outcome["ok"].as_u64() > Some(seconds * 10) && outcome["failed"] == 0,
        "{outcome}"
    );

    // Each certificate is renewed at half of its lifetime.
    let least = usize::try_from(seconds / 60)? + 1;
    ensure!(
        rotated.iter().all(|count| *count >= least),
        "too few rotations in {seconds} seconds: {rotated:?}"
    );
    println!("{seconds} seconds, requests: {outcome}, certificates: {rotated:?}");

    Ok(())
}

/// How the pods of the second test capture traffic: with nftables, if `nft` is installed.
fn captured_by() -> &'static [&'static str] {
    if std::process::Command::new("nft")
        .arg("--version")
        .output()
        .is_ok()
    {
        return &["--native-nftables"];
    }
    eprintln!("nft is not installed: iptables is used");
    &[]
}
