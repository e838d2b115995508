//! Envoys that read their certificates from files: a change starts the next epoch, which takes over
//! by hot restart.

use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::wait::until_within;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

/// Where the certificates are, in the pod.
const CHAIN: &str = "etc/istio/pod/cert-chain.pem";
const KEY: &str = "etc/istio/pod/key.pem";
/// Longer than an Envoy needs to start beside another one.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The epoch that Envoy's admin API reports; `None` while one takes over.
async fn epoch(pod: &Pod) -> Option<u64> {
    let (status, text) = pod.get(pod.admin, "/server_info").await.ok()?;
    let info: Value = serde_json::from_str(&text).ok()?;
    let is_live = status == 200 && info["state"] == "LIVE";
    // A number of zero is left out.
    let epoch = info["command_line_options"]["restart_epoch"].as_u64();
    is_live.then_some(epoch.unwrap_or(0))
}

async fn wait_for_epoch(pod: &Pod, wanted: u64) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    while epoch(pod).await != Some(wanted) {
        ensure!(Instant::now() < end, "no epoch {wanted}:\n{}", pod.log());
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[tokio::test]
async fn changed_certificates_start_the_next_epoch_and_the_one_before_drains() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let files = format!("{CHAIN},absent/root-cert.pem,{KEY}");
    let variables = [
        ("NAVARCH_CERTIFICATE_FILES", &*files),
        ("NAVARCH_CERTIFICATE_RELOAD_DELAY", "500ms"),
    ];
    // Envoy ends 15 s after it has drained.
    let settings = json!({"drainDuration": "1s"});
    let mut pod = Pod::start_with_config(&server, "sidecar", &[], &variables, &settings)?;
    pod.wait_ready().await?;
    wait_for_epoch(&pod, 0).await?;

    // Both events are within the delay: one epoch.
    pod.replace(CHAIN, "chain")?;
    pod.replace(KEY, "key")?;
    wait_for_epoch(&pod, 1).await?;
    pod.wait_ready().await?;
    let clusters = pod.get(pod.admin, "/clusters").await?.1;
    ensure!(
        clusters.contains("outbound|80||bank.example"),
        "the next epoch has the configuration: {clusters}"
    );

    // The same content is no reason for another.
    pod.replace(CHAIN, "chain")?;
    sleep(Duration::from_secs(3)).await;
    ensure!(epoch(&pod).await == Some(1), "{}", pod.log());

    let ended = async || pod.processes() == 1;
    until_within(TIMEOUT, "the epoch before has ended", ended).await;
    let code = pod.stop().await?;
    ensure!(code == 0, "it exits with 0: {code}");
    ensure!(pod.processes() == 0, "no process is left");
    Ok(())
}
