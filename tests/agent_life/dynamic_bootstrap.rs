//! The bootstrap that the control plane generates (`BOOTSTRAP_XDS_AGENT`), with EnvoyFilters of
//! `applyTo: BOOTSTRAP`.

use anyhow::{Result, ensure};
use navarch_testkit::{ports, wait};
use serde_json::{Value, json};

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

const BOOTSTRAP: &str = "etc/istio/proxy/envoy-rev.json";
const ENABLED: (&str, &str) = ("BOOTSTRAP_XDS_AGENT", "true");

/// A mesh with a cluster that an EnvoyFilter adds to bootstraps.
fn mesh(cluster: &str) -> String {
    format!(
        "{MESH}---\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{name: more, namespace: shop}}\n\
         spec: {{configPatches: [{{applyTo: BOOTSTRAP, patch: {{operation: MERGE, value: \
         {{static_resources: {{clusters: [{{name: {cluster}, type: STATIC, connect_timeout: 1s}}]}}}}}}}}]}}\n"
    )
}

/// A proxy config with another control plane.
fn at(port: u16) -> Value {
    json!({ "discoveryAddress": format!("127.0.0.1:{port}") })
}

#[tokio::test]
async fn envoy_starts_with_the_bootstrap_of_the_control_plane() -> Result<()> {
    let server = Server::with_mesh(&mesh("of-the-filter")).await?;
    let mut pod = Pod::start(&server, &[ENABLED])?;
    pod.wait_ready().await?;

    let clusters = pod.get(pod.admin, "/clusters").await?.1;
    for cluster in ["of-the-filter::", "outbound|80||bank.example::"] {
        ensure!(clusters.contains(cluster), "{cluster}: {clusters}");
    }
    let log = pod.log();
    ensure!(log.contains("received server-side bootstrap in"), "{log}");

    let written: Value = serde_json::from_str(&pod.file(BOOTSTRAP))?;
    ensure!(
        written["node"]["metadata"]["NAME"] == "web-1",
        "the node is the agent's: {written}"
    );
    let sent = written["node"]["metadata"].get("NAVARCH_BOOTSTRAP");
    ensure!(sent.is_none(), "{written}");
    ensure!(
        pod.get(pod.envoy_status, "/healthz/ready").await?.0 == 200,
        "its ports are the agent's"
    );

    pod.stop().await?;
    ensure!(!pod.has_bootstrap(), "its bootstrap is deleted");

    let mut pod = Pod::start(&server, &[])?;
    pod.wait_ready().await?;
    let clusters = pod.get(pod.admin, "/clusters").await?.1;
    ensure!(!clusters.contains("of-the-filter"), "{clusters}");
    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn without_a_control_plane_the_agent_ends_or_uses_its_own_bootstrap() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let nowhere = at(ports::free()?);
    let limit = ("NAVARCH_BOOTSTRAP_TIMEOUT", "1s");
    let labels = [("app", "web")];

    let variables = [ENABLED, limit];
    let mut pod = Pod::start_with_config(&server, "sidecar", &labels, &variables, &nowhere)?;
    let code = pod.end().await?;
    let log = pod.log();
    ensure!(code == 1, "{code}: {log}");
    ensure!(
        log.contains("no bootstrap from the control plane within 1s"),
        "{log}"
    );
    ensure!(!log.contains("initializing epoch"), "no Envoy: {log}");

    let local = ("NAVARCH_BOOTSTRAP_FALLBACK", "local");
    let variables = [ENABLED, limit, local];
    let mut pod = Pod::start_with_config(&server, "sidecar", &labels, &variables, &nowhere)?;
    wait::until("the agent gives up", async || {
        pod.log()
            .contains("starting Envoy with the agent's own bootstrap")
    })
    .await;
    wait::until("Envoy starts", async || pod.processes() == 1).await;
    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_bootstrap_that_envoy_rejects_is_not_used() -> Result<()> {
    // The name of a cluster that the bootstrap has already.
    let server = Server::with_mesh(&mesh("prometheus_stats")).await?;
    let variables = [
        ENABLED,
        ("NAVARCH_BOOTSTRAP_TIMEOUT", "1s"),
        ("NAVARCH_BOOTSTRAP_FALLBACK", "local"),
    ];
    let mut pod = Pod::start(&server, &variables)?;
    pod.wait_ready().await?;
    let log = pod.log();
    ensure!(log.contains("Envoy rejects the bootstrap"), "{log}");
    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_bootstrap_is_not_accepted_in_plain_text() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let labels = [("app", "web")];
    let plain = json!({ "controlPlaneAuthPolicy": "NONE" });
    let mut pod = Pod::start_with_config(&server, "sidecar", &labels, &[ENABLED], &plain)?;
    let code = pod.end().await?;
    let log = pod.log();
    ensure!(
        code == 1 && log.contains("BOOTSTRAP_XDS_AGENT requires TLS"),
        "{code}: {log}"
    );
    Ok(())
}
