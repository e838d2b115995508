//! A remote cluster: its Secret adds and removes it; its endpoints stay while its credentials
//! change and while its API server is down, and an outage does not block the control plane.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_proto::envoy::config::core::v3::{Node, address, socket_address};
use navarch_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_testkit::cluster::{Cluster, Writer};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait::{Verbatim, until_some, wanted};
use prost::Message;
use prost_types::value::Kind;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{cluster, program};

/// How long a change may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The remote cluster's line in `/debug/clusterz` once it is synced.
const SYNCED: &str = r#"{"id":"east","secretName":"istio-system/east","syncStatus":"synced"}"#;
/// The cluster to which the proxy subscribes.
const SERVICE: &str = "outbound|80||web.shop.svc.cluster.local";
/// The type of the subscription.
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A proxy that gets the endpoints of one service.
struct Proxy {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    /// The addresses in the last response.
    addresses: BTreeSet<String>,
    /// The addresses in each response since the last check.
    received: Vec<BTreeSet<String>>,
}

impl Proxy {
    /// Opens a stream.
    async fn open(server: SocketAddr) -> Result<Self> {
        let mut client =
            AggregatedDiscoveryServiceClient::connect(format!("http://{server}")).await?;
        let (requests, outgoing) = mpsc::channel(8);
        let text = |text: &str| prost_types::Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        };
        let fields = [
            ("NAMESPACE".to_owned(), text("shop")),
            ("CLUSTER_ID".to_owned(), text("Kubernetes")),
        ];

        let metadata = Some(prost_types::Struct {
            fields: fields.into(),
        });
        let id = "sidecar~10.0.0.9~client.shop~shop.svc.cluster.local".to_owned();
        let ask = DeltaDiscoveryRequest {
            node: Some(Node {
                id,
                metadata,
                ..Node::default()
            }),
            type_url: ENDPOINTS.to_owned(),
            resource_names_subscribe: vec![SERVICE.to_owned()],
            ..Default::default()
        };

        requests.send(ask).await?;
        let responses = client
            .delta_aggregated_resources(ReceiverStream::new(outgoing))
            .await?
            .into_inner();

        Ok(Self {
            requests,
            responses,
            addresses: BTreeSet::new(),
            received: Vec::new(),
        })
    }

    /// Waits until it has exactly these addresses.
    async fn has(&mut self, wanted: &[&str]) -> Result<()> {
        let wanted: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
        let end = Instant::now() + TIMEOUT;
        while self.addresses != wanted {
            let answer = tokio::time::timeout_at(end, self.responses.message()).await;
            let answer =
                answer.with_context(|| format!("{:?} instead of {wanted:?}", self.addresses))??;
            self.take(answer.context("the stream ended")?).await?;
        }
        Ok(())
    }

    /// Fails if a response since the last check lacks this address.
    fn never_without(&mut self, address: &str) -> Result<()> {
        for received in self.received.drain(..) {
            ensure!(
                received.contains(address),
                "{address} is not in {received:?}"
            );
        }
        Ok(())
    }

    /// Applies a response.
    async fn take(&mut self, response: DeltaDiscoveryResponse) -> Result<()> {
        for resource in response.resources {
            let body = resource.resource.context("a resource without a body")?;
            let assignment = ClusterLoadAssignment::decode(body.value.as_slice())?;
            let endpoints = assignment
                .endpoints
                .into_iter()
                .flat_map(|group| group.lb_endpoints);
            self.addresses = endpoints
                .filter_map(|endpoint| address_of(endpoint.host_identifier?))
                .collect();
            self.received.push(self.addresses.clone());
        }

        let ack = DeltaDiscoveryRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            ..Default::default()
        };

        Ok(self.requests.send(ack).await?)
    }
}

fn address_of(host: lb_endpoint::HostIdentifier) -> Option<String> {
    let lb_endpoint::HostIdentifier::Endpoint(endpoint) = host else {
        return None;
    };
    match endpoint.address?.address? {
        address::Address::SocketAddress(socket) => {
            let port = match socket.port_specifier? {
                socket_address::PortSpecifier::PortValue(port) => port,
                other => panic!("{other:?}"),
            };
            Some(format!("{}:{port}", socket.address))
        }
        other => panic!("{other:?}"),
    }
}

/// Creates the service with endpoints at these addresses.
async fn serve(writer: &Writer, addresses: &[&str]) -> Result<()> {
    writer
        .put(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]},
        }))
        .await?;

    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();

    writer
        .put(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }))
        .await
}

/// The Secret with the kubeconfig of the remote cluster.
fn secret(kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "east", "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}},
        "stringData": {"east": kubeconfig},
    })
}

/// Waits until a page contains a text.
async fn page_contains(navarch: &Navarch, page: &str, text: &str) {
    until_some(&format!("{page} contains {text:?}"), async || {
        let response = if page == "metrics" {
            navarch.metrics().await
        } else {
            navarch.page(page).await
        };
        let response = response.unwrap_or_else(|error| format!("{error:#}"));
        if response.contains(text) {
            Ok(())
        } else {
            Err(Verbatim(response))
        }
    })
    .await;
}

/// Waits until a namespace has the ConfigMap with the roots.
async fn has_roots(writer: &Writer, namespace: &str) {
    until_some(&format!("the roots are in {namespace}"), async || {
        let map = writer
            .get(&format!(
                "/api/v1/namespaces/{namespace}/configmaps/istio-ca-root-cert"
            ))
            .await;
        wanted(map, |map| {
            let pem = map
                .as_ref()
                .ok()
                .and_then(|map| map["data"]["root-cert.pem"].as_str());
            pem.is_some_and(|pem| !pem.is_empty())
        })
    })
    .await
    .ok();
}

/// Starts Navarch with the primary cluster.
async fn start(kubeconfig: &Path) -> Result<Navarch> {
    let environment = [
        ("EXTERNAL_ISTIOD", "true"),
        ("PILOT_REMOTE_CLUSTER_TIMEOUT", "3s"),
    ];
    Navarch::start_on_kubernetes(
        program(),
        kubeconfig,
        &["--secure-grpc-addr=127.0.0.1:0"],
        &environment,
    )
    .await
}

/// Changes the credentials of the remote cluster in several ways; its endpoints must stay.
async fn rotate(
    here: &Writer,
    there: &Writer,
    navarch: &Navarch,
    proxy: &mut Proxy,
    kubeconfig: &str,
) -> Result<()> {
    proxy.received.clear();

    // With invalid credentials, the connection with the previous ones is kept.
    let config: Value = serde_json::from_str(kubeconfig)?;
    let mut wrong = config.clone();
    wrong["users"][0]["user"]["token"] = json!("of-nobody");
    here.put(&secret(&wrong.to_string())).await?;
    page_contains(
        navarch,
        "metrics",
        r#"remote_cluster_secret_events_total{event="update"} 1"#,
    )
    .await;
    serve(there, &["10.20.0.1", "10.20.0.2"]).await?;
    proxy
        .has(&["10.10.0.1:8080", "10.20.0.1:8080", "10.20.0.2:8080"])
        .await?;

    // Credentials that would run a program are rejected and change nothing.
    let mut program = config.clone();
    program["users"][0]["user"] =
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}});
    here.put(&secret(&program.to_string())).await?;
    page_contains(
        navarch,
        "metrics",
        r#"remote_cluster_secret_events_total{event="update"} 2"#,
    )
    .await;
    let end = Instant::now() + TIMEOUT;

    while !navarch.output().contains("uses exec, which is not allowed") {
        ensure!(Instant::now() < end, "{}", navarch.output());
        sleep(Duration::from_millis(20)).await;
    }

    // Other valid credentials replace the previous ones without losing endpoints.
    let mut rotated = config.clone();
    rotated["users"][0]["name"] = json!("rotated");
    rotated["contexts"][0]["context"]["user"] = json!("rotated");
    here.put(&secret(&rotated.to_string())).await?;
    page_contains(
        navarch,
        "metrics",
        r#"remote_cluster_secret_events_total{event="update"} 3"#,
    )
    .await;
    serve(there, &["10.20.0.1"]).await?;
    proxy.has(&["10.10.0.1:8080", "10.20.0.1:8080"]).await?;
    page_contains(navarch, "/debug/clusterz", SYNCED).await;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_cluster_follows_its_secret_and_never_blocks_the_control_plane() -> Result<()> {
    let guard = cluster().await?;
    let primary = guard.as_ref().context("a cluster")?;
    let mut remote = Cluster::start().await?;
    let here = primary.writer().await?;
    let there = remote.writer().await?;
    serve(&here, &["10.10.0.1"]).await?;
    serve(&there, &["10.20.0.1"]).await?;
    let leaders = json!({"topology.istio.io/controlPlaneClusters": "west,Kubernetes"});

    for (writer, annotations) in [(&here, json!({})), (&there, leaders)] {
        let metadata = json!({"name": "istio-system", "annotations": annotations});
        writer
            .put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .await?;
    }

    let good = std::fs::read_to_string(remote.admin_kubeconfig())?;

    // The cluster is added with its Secret.
    let navarch = start(&primary.admin_kubeconfig()).await?;
    let mut proxy = Proxy::open(navarch.xds).await?;
    proxy.has(&["10.10.0.1:8080"]).await?;
    here.put(&secret(&good)).await?;
    proxy.has(&["10.10.0.1:8080", "10.20.0.1:8080"]).await?;
    page_contains(&navarch, "/debug/clusterz", SYNCED).await;
    page_contains(
        &navarch,
        "metrics",
        r#"istiod_managed_clusters{cluster_type="remote"} 1"#,
    )
    .await;
    has_roots(&there, "shop").await;

    rotate(&here, &there, &navarch, &mut proxy, &good).await?;

    // While its API server is down, the known endpoints stay, and changes of the own cluster
    // arrive.
    remote.kill_api_server();
    ensure!(navarch.is_ready().await, "it is still ready");
    serve(&here, &["10.10.0.2"]).await?;
    proxy.has(&["10.10.0.2:8080", "10.20.0.1:8080"]).await?;
    proxy.never_without("10.20.0.1:8080")?;

    // A control plane that starts meanwhile becomes ready without it.
    let second = start(&primary.admin_kubeconfig()).await?;
    page_contains(&second, "/debug/clusterz", r#""syncStatus":"timeout""#).await;
    page_contains(
        &second,
        "metrics",
        r#"remote_cluster_sync_timeouts_total{cluster="east"} 1"#,
    )
    .await;
    let mut late = Proxy::open(second.xds).await?;
    late.has(&["10.10.0.2:8080"]).await?;

    // It adds the cluster once its API server is back.
    remote.start_api_server().await?;
    late.has(&["10.10.0.2:8080", "10.20.0.1:8080"]).await?;
    page_contains(&second, "/debug/clusterz", SYNCED).await;

    // The cluster is removed with its Secret.
    here.delete(&secret("")).await?;
    proxy.has(&["10.10.0.2:8080"]).await?;
    late.has(&["10.10.0.2:8080"]).await?;
    page_contains(
        &navarch,
        "metrics",
        r#"istiod_managed_clusters{cluster_type="remote"} 0"#,
    )
    .await;
    ensure!(
        !navarch.page("/debug/clusterz").await?.contains("east"),
        "it is no longer shown"
    );
    navarch.stop().await?;
    second.stop().await?;

    Ok(())
}
