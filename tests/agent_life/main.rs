//! A stock Envoy under the agent and a real control plane: Envoy becomes ready once it has
//! certificates and configuration, and exits with the agent, however the agent ends.
//!
//! Needs both versions of Envoy from `make tools`. The CPU cost of request metrics is printed with `-- --nocapture
//! cost`; `NAVARCH_BIN` selects another build, `NAVARCH_REQUESTS` the number of requests.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, and reads where programs are from the environment"
)]

mod cost;
mod credentials;
mod dashboards;
mod detected;
mod dynamic_bootstrap;
mod epochs;
mod fine_grained;
mod learned_scope;
mod metrics;
mod other_ca;
mod pilot_agent;
mod starting;
mod tokens;
mod upgrade;
mod waypoint;
mod xds_debug;
mod zone;

use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::wait::until;
use navarch_tests::{client, hbone, issuer, panels, pod, server, web, workload_sds};
use serde_json::json;
use tokio::time::Instant;

use pod::Pod;
use server::Server;

/// A service whose cluster in Envoy proves that configuration has arrived.
const MESH: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: bank, namespace: shop}\n\
    spec: {hosts: [bank.example], location: MESH_INTERNAL, addresses: [10.9.9.9], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC,\n\
    endpoints: [{address: 127.0.0.1}]}\n";

#[tokio::test]
async fn envoy_becomes_ready_and_drains_when_the_agent_terminates() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let mut pod = Pod::start(&server, &[])?;
    pod.wait_ready().await?;
    ensure!(
        pod.get(pod.envoy_status, "/healthz/ready").await?.0 == 200,
        "readiness also through Envoy's port"
    );
    let clusters = pod.get(pod.admin, "/clusters").await?.1;

    ensure!(
        clusters.contains("outbound|80||bank.example"),
        "configuration arrived: {clusters}"
    );
    let metrics = pod.get(pod.status, "/stats/prometheus").await?.1;
    for name in ["istio_agent_scrapes_total 1", "envoy_server_live"] {
        ensure!(metrics.contains(name), "{name} is missing");
    }

    ensure!(pod.processes() == 1, "one Envoy");
    let start = Instant::now();
    let code = pod.stop().await?;
    ensure!(
        code == 0 && start.elapsed() >= Duration::from_secs(1),
        "it drains for a second and exits with 0: {code}"
    );
    ensure!(pod.processes() == 0, "no process is left");

    ensure!(!pod.has_bootstrap(), "its bootstrap is deleted");
    Ok(())
}

#[tokio::test]
async fn envoy_does_not_outlive_an_agent_that_is_killed() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let mut pod = Pod::start(&server, &[])?;
    pod.wait_ready().await?;
    pod.kill()?;
    until("Envoy has exited with its agent", async || {
        pod.processes() == 0
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn the_agent_exits_with_envoys_code_and_on_quitquitquit() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;

    // Longer than the test waits for the agent's exit.
    let settings = json!({"terminationDrainDuration": "60s"});
    let mut pod = Pod::start_with_config(
        &server,
        "sidecar",
        &[],
        &[("ISTIO_META_DNS_CAPTURE", "true")],
        &settings,
    )?;

    pod.wait_ready().await?;
    ensure!(
        pod.get(pod.status, "/debug/ndsz")
            .await?
            .1
            .contains("bank.example"),
        "the DNS table arrived"
    );

    pod.post(pod.status, "/quitquitquit").await?;
    ensure!(pod.end().await? == 0, "it did not drain");

    let mut pod = Pod::start(&server, &[])?;
    pod.wait_ready().await?;
    pod.signal_envoy("SEGV")?;
    ensure!(
        pod.end().await? == 139,
        "the agent exits with the crash's code"
    );
    ensure!(pod.processes() == 0, "no process is left");

    Ok(())
}

#[tokio::test]
async fn an_envoy_without_crypto_hardware_handles_private_keys_itself() -> Result<()> {
    // The client uses mutual TLS with the bank.
    let endpoint = "{address: 127.0.0.1, labels: {security.istio.io/tlsMode: istio}}";
    let server = Server::with_mesh(&MESH.replace("{address: 127.0.0.1}", endpoint)).await?;
    let settings = json!({ "privateKeyProvider": { "cryptomb": { "pollDelay": "10ms" } } });
    let mut pod = Pod::start_with_config(&server, "sidecar", &[("app", "web")], &[], &settings)?;
    pod.wait_ready().await?;
    let certificates = pod.get(pod.admin, "/certs").await?.1;
    ensure!(
        certificates.contains("spiffe://cluster.local/ns/shop/sa/web"),
        "{certificates}\n{}",
        pod.log()
    );

    ensure!(
        pod.log().contains("Envoy lacks the extension cryptomb"),
        "{}",
        pod.log()
    );

    Ok(())
}
