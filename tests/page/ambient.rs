//! The dashboard of a mesh in ambient mode, with a staged rollout and a second replica.

use std::net::SocketAddr;
use std::path::Path;

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_testkit::navarch::{Addresses, Navarch};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use crate::browser::{browser, drive};
use crate::proxy::{Reaction, authorized, connect, identities, pod};

/// A namespace with a waypoint, a service that uses it and one that does not, and the pods of two
/// control planes.
const MESH: &str = include_str!("ambient.yaml");
/// The VirtualService of the service without a waypoint.
const RULE: &str = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop, annotations: {navarch.io/rollout: 'off', navarch.io/rollout-pause: 1h}}
spec:
  hosts: [reviews]
  http: [{headers: {request: {set: {x: first}}}, route: [{destination: {host: reviews}}]}]
";
const ADDRESS: &str = "type.googleapis.com/istio.workload.Address";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Connects a node that subscribes to all resources of a type and acknowledges them, until the
/// tasks are dropped.
async fn follow(
    tasks: &mut JoinSet<()>,
    server: SocketAddr,
    id: &str,
    account: (&str, &str),
    url: &'static str,
) {
    let mut service = AggregatedDiscoveryServiceClient::connect(format!("http://{server}"))
        .await
        .unwrap();
    let (requests, outgoing) = mpsc::channel(16);
    let node = Some(Node {
        id: id.to_owned(),
        ..Node::default()
    });

    let first = DeltaDiscoveryRequest {
        node,
        type_url: url.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(first).await.unwrap();
    let mut responses = service
        .delta_aggregated_resources(authorized(
            ReceiverStream::new(outgoing),
            account.0,
            account.1,
        ))
        .await
        .unwrap()
        .into_inner();

    tasks.spawn(async move {
        while let Ok(Some(response)) = responses.message().await {
            let type_url = response.type_url;
            let response_nonce = response.nonce;
            let answer = DeltaDiscoveryRequest {
                type_url,
                response_nonce,
                ..DeltaDiscoveryRequest::default()
            };
            if requests.send(answer).await.is_err() {
                return;
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_replicas_and_ambient_mode_are_seen_in_a_browser() {
    let Some(packages) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mesh = folder.path().join("mesh");
    std::fs::create_dir(&mesh).unwrap();
    std::fs::write(mesh.join("mesh.yaml"), MESH).unwrap();
    std::fs::write(mesh.join("reviews.yaml"), RULE).unwrap();
    let flags = [
        format!("--state-dir={}", folder.path().join("state").display()),
        "--registries=".to_owned(),
    ];

    // Only rejections by a known pod of the namespace stop a rollout.
    std::fs::write(mesh.join("pod.yaml"), pod("web-4", "shop", "10.7.0.5")).unwrap();
    let identities = identities();
    let mut environment = vec![("POD_NAME", "istiod-a"), ("PILOT_ENABLE_AMBIENT", "true")];
    environment.extend(
        identities
            .iter()
            .map(|(name, value)| (*name, value.as_str())),
    );
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let navarch = Navarch::start_at(program, &mesh, &flags, &environment, Addresses::ANY)
        .await
        .unwrap();
    let mut sidecars = Vec::new();

    for n in 0..5 {
        let reaction = if n == 4 {
            Reaction::Reject("bad-mark", "no such header")
        } else {
            Reaction::Accept
        };
        let pod = format!("web-{n}");
        let ip = format!("10.7.0.{}", n + 1);
        sidecars.push(connect(navarch.xds, &pod, "shop", &ip, &[("app", "web")], reaction).await);
    }

    let mut others = JoinSet::new();
    let waypoint = "waypoint~10.1.0.9~way-1.shop~shop.svc.cluster.local";
    follow(&mut others, navarch.xds, waypoint, ("shop", "way"), CLUSTER).await;
    let ztunnel = "ztunnel~10.1.0.7~ztunnel-1.istio-system~istio-system.svc.cluster.local";
    follow(
        &mut others,
        navarch.xds,
        ztunnel,
        ("istio-system", "ztunnel"),
        ADDRESS,
    )
    .await;
    drive("ambient.js", &packages, folder.path(), &navarch).await;
}
