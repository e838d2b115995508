//! What an agent logs and serves from its start.

use std::time::Duration;

use anyhow::{Result, ensure};
use navarch::agent::local_http::LocalRequest;
use navarch_api::yaml;
use navarch_testkit::wait::until;
use serde_json::json;

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

/// The folder of the sockets over which Envoy gets its certificate.
const SDS_FOLDER: &str = "var/run/secrets/workload-spiffe-uds";

#[tokio::test]
async fn the_sds_socket_is_tried_again_while_its_folder_cannot_be_created() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let mut pod = Pod::start_with_file(&server, SDS_FOLDER, "a file in the folder's place")?;
    until("the failure is logged", async || {
        pod.log()
            .contains("failed to listen on a socket; trying again")
    })
    .await;

    pod.remove(SDS_FOLDER)?;
    pod.wait_ready().await?;
    ensure!(pod.processes() == 1, "one Envoy");
    Ok(())
}

#[tokio::test]
async fn flags_and_the_effective_config_are_logged_without_secrets() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let settings = json!({
        "proxyMetadata": { "ISTIO_META_FLAVOR": "vanilla", "SHOP_PASSWORD": "hunter2" },
    });
    let mut pod = Pod::start_with_config(&server, "sidecar", &[], &[], &settings)?;
    pod.wait_ready().await?;

    let log = pod.log();
    ensure!(log.contains("FLAG: --proxyLogLevel=\"info\"\n"), "{log}");
    ensure!(log.contains("FLAG: --concurrency=\"0\"\n"), "{log}");
    let lines = log
        .lines()
        .filter_map(|line| Some(line.split_once("Effective config: ")?.1));
    let text = lines.collect::<Vec<_>>().join("\n");
    let config = yaml::parse(&text, yaml::Schema::V1_2)?;
    ensure!(
        config["discoveryAddress"] == server.secure.to_string(),
        "{text}"
    );
    ensure!(config["terminationDrainDuration"] == "1s", "{text}");
    let metadata = &config["proxyMetadata"];
    ensure!(metadata["ISTIO_META_FLAVOR"] == "vanilla", "{text}");
    ensure!(metadata["SHOP_PASSWORD"] == "[redacted]", "{text}");
    ensure!(!log.contains("hunter2"), "a secret is in the log: {log}");

    Ok(())
}

#[tokio::test]
async fn a_cpu_profile_of_the_agent_is_served_unless_profiling_is_off() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let mut pod = Pod::start(&server, &[])?;
    pod.wait_ready().await?;
    let page = "/debug/pprof/profile?seconds=1";
    // Reading the symbols of an unoptimized program takes seconds.
    let profile = LocalRequest::get("127.0.0.1", pod.status, page, Duration::from_secs(60))
        .send()
        .await?;
    ensure!(profile.status == 200, "{profile:?}");
    ensure!(profile.body.starts_with(&[0x1f, 0x8b]), "gzip");
    ensure!(pod.get(pod.status, "/debug/pprof/heap").await?.0 == 501);

    let flags = ["--profiling=false"];
    let mut pod = Pod::start_with_flags(&server, "sidecar", &[], &[], &json!({}), &flags)?;
    pod.wait_ready().await?;
    ensure!(pod.get(pod.status, page).await?.0 == 404);
    Ok(())
}
