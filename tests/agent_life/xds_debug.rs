//! The control plane's debug API by way of the agent, as old versions of istioctl use it
//! (`proxy-status --xds-via-agents`).

use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use navarch_proto::envoy::service::status::v3::ClientConfig;
use navarch_testkit::{ports, wait};
use prost::Message as _;
use serde_json::Value;
use tonic::{Code, Status};

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

const SYNCZ: &str = "istio.io/debug/syncz";
const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// The response to a request on the agent's debug port.
async fn ask(port: u16, type_url: &str) -> Result<DiscoveryResponse, Status> {
    let request = DiscoveryRequest {
        type_url: type_url.to_owned(),
        ..DiscoveryRequest::default()
    };
    let mut agent = AggregatedDiscoveryServiceClient::connect(format!("http://127.0.0.1:{port}"))
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let mut responses = agent
        .stream_aggregated_resources(tokio_stream::once(request))
        .await?
        .into_inner();
    let response = responses.message().await?;
    response.ok_or_else(|| Status::cancelled("no response"))
}

#[tokio::test]
async fn the_agent_passes_debug_requests_to_the_control_plane() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let port = ports::free()?;
    let number = port.to_string();
    let variables = [
        ("PROXY_XDS_DEBUG_VIA_AGENT", "true"),
        ("PROXY_XDS_DEBUG_VIA_AGENT_PORT", number.as_str()),
    ];
    let mut pod = Pod::start(&server, &variables)?;
    pod.wait_ready().await?;

    let synced = ask(port, SYNCZ).await?;
    let proxies = synced
        .resources
        .iter()
        .map(|any| ClientConfig::decode(any.value.as_slice()))
        .collect::<Result<Vec<_>, _>>()?;
    ensure!(proxies.len() == 1, "the tool is not listed: {proxies:?}");
    let proxy = proxies.first().context("no proxy")?;
    let id = proxy.node.clone().unwrap_or_default().id;
    ensure!(id == "web-1.shop", "{proxy:?}");
    let mut configs = proxy.generic_xds_configs.iter();
    ensure!(
        configs.any(|config| config.type_url == LISTENER),
        "{proxy:?}"
    );

    let (status, body) = pod.get(port, "/debug/syncz").await?;
    let json: Value = serde_json::from_str(&body)?;
    ensure!(
        status == 200 && json["resources"][0]["node"]["id"] == "web-1.shop",
        "{status}: {body}"
    );

    let error = ask(port, LISTENER).await.unwrap_err();
    ensure!(error.code() == Code::InvalidArgument, "{error}");
    let (status, _) = pod.get(port, "/stats").await?;
    ensure!(status == 404, "{status}");

    // The workload is no operator, and Envoy's stream survives the rejection.
    let (status, body) = pod.get(port, "/debug?resourceName=syncz").await?;
    ensure!(status == 403, "{status}: {body}");
    let (status, body) = pod.get(port, "/debug/syncz").await?;
    ensure!(status == 200 && body.contains("web-1.shop"), "{body}");

    drop(server);
    wait::until_some("requests fail without a control plane", async || {
        let (status, body) = pod.get(port, "/debug/syncz").await?;
        ensure!(status == 503, "{status}: {body}");
        anyhow::Ok(())
    })
    .await;
    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn the_agent_works_without_its_debug_port() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let port = ports::free()?;
    let _other = TcpListener::bind(("127.0.0.1", port))?;
    let number = port.to_string();

    let variables = [
        ("PROXY_XDS_DEBUG_VIA_AGENT", "true"),
        ("PROXY_XDS_DEBUG_VIA_AGENT_PORT", number.as_str()),
    ];
    let mut pod = Pod::start(&server, &variables)?;
    pod.wait_ready().await?;
    ensure!(
        pod.log().contains("failed to listen for debug requests"),
        "{}",
        pod.log()
    );
    pod.stop().await?;

    let port = ports::free()?;
    let number = port.to_string();
    let variables = [("PROXY_XDS_DEBUG_VIA_AGENT_PORT", number.as_str())];
    let mut pod = Pod::start(&server, &variables)?;
    pod.wait_ready().await?;
    ensure!(pod.get(port, "/debug/syncz").await.is_err(), "it listens");
    pod.stop().await?;
    Ok(())
}
