//! The zone of a proxy from the control plane: asked for once, and written into the bootstrap with a
//! reload of Envoy.

use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::wait::until_within;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

const ENABLED: (&str, &str) = ("NAVARCH_ZONE_FROM_CONTROL_PLANE", "true");
/// No cloud is asked for the zone.
const NO_CLOUD: (&str, &str) = ("CLOUD_PLATFORM", "none");
/// The agent's message when it restarts Envoy.
const RESTARTING: &str = "restarting Envoy with a changed bootstrap";
/// The agent's message when it has started an Envoy.
const STARTED: &str = "started Envoy";
/// Longer than an Envoy needs to end and to start again.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The mesh with the agent's pod, on a node with a zone.
fn mesh_with_node() -> String {
    format!(
        "{MESH}---\napiVersion: v1\nkind: Node\n\
         metadata: {{name: n1, labels: {{topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z1}}}}\n\
         ---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web-1, namespace: shop, labels: {{app: web}}}}\n\
         spec: {{serviceAccountName: web, nodeName: n1, containers: [{{name: app, image: app}}]}}\n\
         status: {{phase: Running, podIP: 127.0.0.1, podIPs: [{{ip: 127.0.0.1}}], conditions: [{{type: Ready, status: 'True'}}]}}\n"
    )
}

/// The mesh with a WorkloadEntry at the agent's address.
fn mesh_with_entry() -> String {
    format!(
        "{MESH}---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\n\
         metadata: {{name: machine, namespace: shop}}\n\
         spec: {{address: 127.0.0.1, locality: r2/z2, serviceAccount: web, labels: {{app: web}}}}\n"
    )
}

/// What Envoy's admin API tells about an Envoy that is ready.
async fn server_info(pod: &Pod) -> Option<Value> {
    let (status, text) = pod.get(pod.admin, "/server_info").await.ok()?;
    let info: Value = serde_json::from_str(&text).ok()?;
    (status == 200 && info["state"] == "LIVE").then_some(info)
}

/// Waits until an epoch of Envoy is ready in a zone.
async fn wait_for_zone(pod: &Pod, zone: &str, epoch: u64) -> Result<Value> {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(info) = server_info(pod).await
            && info["node"]["locality"]["zone"] == zone
            && info["command_line_options"]["restart_epoch"] == epoch
        {
            return Ok(info);
        }
        ensure!(
            Instant::now() < end,
            "no epoch {epoch} in zone {zone}:\n{}",
            pod.log()
        );
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn envoy_is_restarted_once_with_the_zone_of_the_pods_node() -> Result<()> {
    let server = Server::with_mesh(&mesh_with_node()).await?;
    let mut pod = Pod::start(&server, &[ENABLED, NO_CLOUD])?;
    // A first Envoy that starts slowly can read the rewritten bootstrap, too.
    let is_restarted = async || pod.log().matches(STARTED).count() == 2;
    until_within(TIMEOUT, "a second Envoy starts", is_restarted).await;
    let info = wait_for_zone(&pod, "z1", 0).await?;
    ensure!(info["node"]["locality"]["region"] == "r1", "{info}");

    pod.wait_ready().await?;
    let clusters = pod.get(pod.admin, "/clusters").await?.1;
    ensure!(clusters.contains("outbound|80||bank.example"), "{clusters}");
    let log = pod.log();
    ensure!(log.matches(RESTARTING).count() == 1, "one restart: {log}");
    ensure!(pod.processes() == 1, "one Envoy");

    let code = pod.stop().await?;
    ensure!(code == 0, "{code}");
    ensure!(!pod.has_bootstrap(), "its bootstrap is deleted");
    Ok(())
}

#[tokio::test]
async fn the_next_epoch_of_envoy_has_the_zone_of_the_workload_entry() -> Result<()> {
    let server = Server::with_mesh(&mesh_with_entry()).await?;
    // With files of certificates Envoy runs with hot restart.
    let files = ("NAVARCH_CERTIFICATE_FILES", "etc/istio/pod/cert-chain.pem");
    let settings = json!({ "drainDuration": "1s" });
    let labels = [("app", "web")];
    let variables = [ENABLED, NO_CLOUD, files];
    let mut pod = Pod::start_with_config(&server, "sidecar", &labels, &variables, &settings)?;
    // An epoch 0 that starts slowly can read the rewritten bootstrap, too.
    wait_for_zone(&pod, "z2", 1).await?;

    pod.wait_ready().await?;
    let log = pod.log();
    ensure!(!log.contains(RESTARTING), "no restart: {log}");
    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn envoy_goes_on_if_no_zone_comes() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let delay = ("NAVARCH_ZONE_RETRY_DELAY", "100ms");
    let mut pod = Pod::start(&server, &[ENABLED, NO_CLOUD, delay])?;
    let gave_up = async || pod.log().contains("the proxy has no zone");
    until_within(TIMEOUT, "the agent gives up", gave_up).await;

    pod.wait_ready().await?;
    let log = pod.log();
    ensure!(
        log.contains("the control plane does not know the zone of the proxy"),
        "{log}"
    );
    ensure!(!log.contains(RESTARTING), "no restart: {log}");
    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_configured_zone_is_used_and_not_asked_for() -> Result<()> {
    let server = Server::with_mesh(&mesh_with_node()).await?;
    let settings = json!({ "availabilityZone": "z9" });
    let variables = [ENABLED, NO_CLOUD];
    let labels = [("app", "web")];
    let mut pod = Pod::start_with_config(&server, "sidecar", &labels, &variables, &settings)?;
    pod.wait_ready().await?;
    wait_for_zone(&pod, "z9", 0).await?;

    let log = pod.log();
    ensure!(!log.contains("the control plane knows the zone"), "{log}");
    pod.stop().await?;
    Ok(())
}
