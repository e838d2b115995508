//! Istio's metrics of requests and connections of two stock Envoys, produced by their agents on
//! both sides.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::client::{self, Reply};
use navarch_testkit::ports;
use navarch_testkit::wait::{Verbatim, until_some};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::pod::Pod;
use crate::server::Server;
use crate::web;

/// Timeout of each step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The address of the server's pod.
pub(crate) const POD: &str = "127.0.32.1";
/// Hosts of the application without a sidecar: one outside the mesh, and one whose cluster says
/// that its servers are behind a tunnel.
const OUTSIDE: &str = "outside.example";
const TUNNELLED: &str = "tunnelled.example";
/// The identity of both pods, on either side.
const SOURCE: &str = "source_principal=\"spiffe://cluster.local/ns/shop/sa/web\"";
const DESTINATION: &str = "destination_principal=\"spiffe://cluster.local/ns/shop/sa/web\"";
/// The labels of the client's workload, the same on both sides.
const CLIENT: [&str; 7] = [
    "source_workload=\"client-v1\"",
    "source_canonical_service=\"client\"",
    "source_canonical_revision=\"latest\"",
    "source_workload_namespace=\"shop\"",
    SOURCE,
    "source_app=\"client\"",
    "source_cluster=\"Kubernetes\"",
];

/// The labels of a TCP client in the server's metrics: those of the pod with its address.
const TCP_CLIENT: [&str; 7] = [
    "source_workload=\"client-v1\"",
    "source_canonical_service=\"client\"",
    "source_canonical_revision=\"v1\"",
    "source_workload_namespace=\"shop\"",
    "source_app=\"client\"",
    "source_version=\"v1\"",
    "source_cluster=\"Kubernetes\"",
];

/// The labels of the service and the outcome.
const SERVICE: [&str; 7] = [
    "destination_service=\"web.shop.svc.cluster.local\"",
    "destination_service_name=\"web\"",
    "destination_service_namespace=\"shop\"",
    "destination_canonical_service=\"web\"",
    "destination_app=\"web\"",
    DESTINATION,
    "request_protocol=\"http\",response_code=\"200\",grpc_response_status=\"\",response_flags=\"-\"",
];

/// The ports of the listeners.
struct Ports {
    http: u16,
    tcp: u16,
}

impl Ports {
    fn free() -> Result<Self> {
        Ok(Self {
            http: ports::free()?,
            tcp: ports::free()?,
        })
    }
}

/// A service with two ports, its sidecar and a client's, the client's pod, and a Telemetry.
fn mesh(
    ports: &Ports,
    inbound: &Ports,
    application: SocketAddr,
    bytes: SocketAddr,
    overrides: &str,
) -> String {
    let http = ports.http;
    let tcp = ports.tcp;
    let of_tcp = inbound.tcp;
    let web = web::strict(POD, http, inbound.http, application);
    let address = application.ip();
    let port = application.port();

    format!(
        r"{web}  - port: {{number: {of_tcp}, protocol: TCP, name: tcp}}
    bind: {POD}
    captureMode: NONE
    defaultEndpoint: {bytes}
  egress: [{{hosts: ['none/*']}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: bytes, namespace: shop}}
spec:
  hosts: [bytes.example]
  location: MESH_INTERNAL
  ports: [{{number: {tcp}, name: tcp, protocol: TCP}}]
  resolution: STATIC
  endpoints: [{{address: {POD}, ports: {{tcp: {of_tcp}}}, labels: {{app: web, security.istio.io/tlsMode: istio}}}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: others, namespace: shop}}
spec:
  hosts: [{OUTSIDE}, {TUNNELLED}]
  location: MESH_EXTERNAL
  ports: [{{number: {http}, name: http, protocol: HTTP}}]
  resolution: STATIC
  endpoints: [{{address: {address}, ports: {{http: {port}}}}}]
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: tunnelled, namespace: shop}}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {{context: SIDECAR_OUTBOUND, cluster: {{service: {TUNNELLED}}}}}
    patch: {{operation: MERGE, value: {{metadata: {{filter_metadata: {{istio: {{disable_mx: true}}}}}}}}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: client, namespace: shop}}
spec:
  workloadSelector: {{labels: {{app: client}}}}
  egress:
  - port: {{number: {http}, protocol: HTTP, name: http}}
    bind: 127.0.0.1
    captureMode: NONE
    hosts: ['shop/*']
  - port: {{number: {tcp}, protocol: TCP, name: tcp}}
    bind: 127.0.0.1
    captureMode: NONE
    hosts: ['shop/*']
---
apiVersion: v1
kind: Pod
metadata:
  name: client-v1-5d-x
  generateName: client-v1-5d-
  namespace: shop
  labels: {{app: client, version: v1, pod-template-hash: 5d}}
  ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: client-v1-5d, uid: a, controller: true}}]
spec: {{serviceAccountName: web, containers: []}}
status: {{phase: Running, podIP: 127.0.0.1, conditions: [{{type: Ready, status: 'True'}}]}}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {{name: mesh, namespace: istio-system}}
spec: {{metrics: [{{providers: [{{name: prometheus}}], reportingInterval: 1s, overrides: [{overrides}]}}]}}
"
    )
}

/// An application that responds with the status in the path, and the names of the headers that it
/// received.
async fn application() -> Result<(SocketAddr, JoinSet<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = axum::Router::new().fallback(|request: axum::extract::Request| async move {
        let wanted = request
            .uri()
            .path()
            .strip_prefix("/status/")
            .and_then(|status| status.parse().ok());
        let status = axum::http::StatusCode::from_u16(wanted.unwrap_or(200)).unwrap();
        let names: Vec<&str> = request.headers().keys().map(|name| name.as_str()).collect();
        (status, names.join("\n"))
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(axum::serve(listener, app).await) });
    Ok((address, tasks))
}

/// An echo server.
async fn echo() -> Result<(SocketAddr, JoinSet<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                drop(tokio::io::copy(&mut reader, &mut writer).await);
            });
        }
    });
    Ok((address, tasks))
}

/// The value of a metric with all of these labels.
pub(crate) fn value(metrics: &str, name: &str, labels: &[&str]) -> Option<u64> {
    let mut lines = metrics.lines().filter_map(|line| {
        let (of, value) = line
            .strip_prefix(name)?
            .strip_prefix('{')?
            .rsplit_once("} ")?;
        labels
            .iter()
            .all(|label| of.contains(label))
            .then(|| value.parse().ok())?
    });
    lines.next()
}

/// Waits until a pod's metrics meet a condition.
pub(crate) async fn until(pod: &Pod, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    until_some(what, async || {
        let metrics = pod
            .get(pod.status, "/stats/prometheus")
            .await
            .map(|answer| answer.1)
            .unwrap_or_default();
        if is_wanted(&metrics) {
            return Ok(metrics);
        }

        let of_mesh = |line: &&str| line.starts_with("istio_") && line.contains("reporter");
        Err((
            metrics
                .lines()
                .filter(of_mesh)
                .map(str::to_owned)
                .collect::<Vec<_>>(),
            Verbatim(pod.log()),
        ))
    })
    .await
}

/// Two pods, and the client's outbound listener.
pub(crate) struct Mesh {
    pub(crate) web: Pod,
    pub(crate) caller: Pod,
    pub(crate) front: SocketAddr,
}

impl Mesh {
    /// Starts both, and waits until a request succeeds.
    pub(crate) async fn start(server: &Server, http: u16) -> Result<Self> {
        let of_web = [("INSTANCE_IP", POD), ("ISTIO_META_WORKLOAD_NAME", "web-v1")];
        let of_client = [
            ("POD_NAME", "client-1"),
            ("ISTIO_META_WORKLOAD_NAME", "client-v1"),
        ];
        let mut web = Pod::start_labelled(server, "web", &of_web)?;
        let mut caller = Pod::start_labelled(server, "client", &of_client)?;
        web.wait_ready().await?;

        caller.wait_ready().await?;
        let mesh = Self {
            web,
            caller,
            front: SocketAddr::from(([127, 0, 0, 1], http)),
        };
        let end = Instant::now() + TIMEOUT;

        while !mesh.get("/").await.is_ok_and(|reply| reply.status == 200) {
            ensure!(
                Instant::now() < end,
                "no answer:\n{}\n{}",
                mesh.caller.log(),
                mesh.web.log()
            );
            sleep(Duration::from_millis(50)).await;
        }

        Ok(mesh)
    }

    /// Requests a path of the service.
    pub(crate) async fn get(&self, path: &str) -> Result<Reply> {
        self.get_from("web.shop.svc.cluster.local", path).await
    }

    /// Requests a path of a host.
    async fn get_from(&self, host: &str, path: &str) -> Result<Reply> {
        let host = format!("{host}:{}", self.front.port());
        client::get(self.front, &host, path, &[]).await
    }

    /// The client's pod and the server's.
    fn pods(&self) -> [&Pod; 2] {
        [&self.caller, &self.web]
    }

    /// Both sides count two requests, with source and destination.
    async fn counts_requests(&self) -> Result<()> {
        let reply = self.get("/headers").await?;
        ensure!(
            reply
                .headers
                .keys()
                .all(|name| !name.as_str().contains("peer-metadata")),
            "{:?}",
            reply.headers
        );

        let at_client = [
            "reporter=\"source\"",
            "connection_security_policy=\"unknown\"",
        ];
        let at_web = [
            "reporter=\"destination\"",
            "connection_security_policy=\"mutual_tls\"",
            "destination_workload=\"web-v1\"",
        ];

        for (pod, own) in [(&self.caller, &at_client[..]), (&self.web, &at_web)] {
            let labels = [&CLIENT[..], &SERVICE, own].concat();
            let is_counted =
                |metrics: &str| value(metrics, "istio_requests_total", &labels) >= Some(2);
            let metrics = until(pod, "two requests", is_counted).await;

            for name in [
                "request_duration_milliseconds",
                "request_bytes",
                "response_bytes",
            ] {
                let count = value(&metrics, &format!("istio_{name}_count"), &labels);
                ensure!(
                    count >= Some(2) && count == value(&metrics, "istio_requests_total", &labels),
                    "{name}: {count:?}"
                );
            }

            ensure!(
                value(&metrics, "istio_request_bytes_sum", &labels) > Some(100),
                "bytes of headers count"
            );
        }

        Ok(())
    }

    /// As with Istio's proxies, a server outside the mesh gets the client's metadata, and one
    /// behind a tunnel does not.
    async fn sends_metadata_only_to_servers_without_a_tunnel(&self) -> Result<()> {
        for (host, expected) in [
            (
                OUTSIDE,
                vec!["x-envoy-peer-metadata", "x-envoy-peer-metadata-id"],
            ),
            (TUNNELLED, Vec::new()),
        ] {
            let reply = self.get_from(host, "/").await?;
            let received: Vec<&str> = reply
                .body
                .lines()
                .filter(|name| name.contains("peer-metadata"))
                .collect();
            ensure!(
                reply.status == 200 && received == expected,
                "{host}: {} {}",
                reply.status,
                reply.body
            );
        }

        Ok(())
    }

    /// Both sides count a connection once, and its bytes while it is open.
    async fn counts_connections(&self, port: u16) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(&[7; 1000]).await?;
        stream.read_exact(&mut [0; 1000]).await?;
        let of = |metrics: &str| {
            let tcp = [
                "request_protocol=\"tcp\"",
                SOURCE,
                DESTINATION,
                "response_flags=\"-\"",
            ];
            [
                "connections_opened",
                "connections_closed",
                "received_bytes",
                "sent_bytes",
            ]
            .map(|name| value(metrics, &format!("istio_tcp_{name}_total"), &tcp))
        };

        for pod in self.pods() {
            let wanted = [1, 0, 1000, 1000].map(Some);
            until(pod, "an open connection", |metrics| of(metrics) == wanted).await;
        }

        let metrics = until(&self.web, "who the client is", |metrics| {
            of(metrics)[0] == Some(1)
        })
        .await;
        ensure!(
            value(&metrics, "istio_tcp_connections_opened_total", &TCP_CLIENT) == Some(1),
            "{metrics}"
        );

        drop(stream);

        for pod in self.pods() {
            let wanted = [1, 1, 1000, 1000].map(Some);
            until(pod, "a closed connection", |metrics| of(metrics) == wanted).await;
        }

        Ok(())
    }

    /// Istio's dashboards have data in every panel, after a denied request and a request with
    /// status 404.
    async fn fills_dashboards(&self) -> Result<()> {
        for (path, status) in [("/status/404", 404), ("/status/503", 503)] {
            ensure!(self.get(path).await?.status == status, "{path}");
        }
        let wanted = ["response_code=\"404\"", "response_code=\"503\""];
        let are_counted = |metrics: &str| {
            wanted
                .iter()
                .all(|code| value(metrics, "istio_requests_total", &[code]).is_some())
        };
        let client = until(&self.caller, "failures", are_counted).await;
        let server = until(&self.web, "failures", are_counted).await;
        crate::dashboards::have_data([&client, &server])
    }

    /// A Telemetry resource changes the labels of requests.
    async fn has_changed_labels(&self) -> Result<()> {
        let at_client = ["up=\"web\"", "down=\"unknown\"", "label=\"unknown\""];
        let at_web = ["up=\"unknown\"", "down=\"client\"", "label=\"v1\""];
        for (pod, of_peers) in self.pods().into_iter().zip([at_client, at_web]) {
            let end = Instant::now() + TIMEOUT;
            let metrics = loop {
                self.get("/changed").await?;
                let metrics = pod.get(pod.status, "/stats/prometheus").await?.1;
                let changed = ["path=\"/changed\"", "tier=\"gold\"", "none=\"unknown\""];
                let changed = [&changed[..], &of_peers].concat();
                if value(&metrics, "istio_requests_total", &changed).is_some() {
                    break metrics;
                }
                ensure!(
                    Instant::now() < end,
                    "the labels did not change:\n{metrics}\n{}",
                    pod.log()
                );
                sleep(Duration::from_millis(100)).await;
            };

            let line = metrics
                .lines()
                .find(|line| line.contains("path=\"/changed\""))
                .context("a line")?;
            ensure!(!line.contains("source_app"), "the tag is removed: {line}");
        }

        Ok(())
    }

    /// Without metrics in Telemetry, no listener has an access log for metrics.
    pub(crate) async fn is_switched_off(&self) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        for pod in self.pods() {
            while pod
                .get(pod.admin, "/config_dump?resource=dynamic_listeners")
                .await?
                .1
                .contains("istio_metrics")
            {
                ensure!(Instant::now() < end, "the access logs are still there");
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }
}

/// Everything that the two pods need: an application, an echo server, and ports.
pub(crate) struct Fixture {
    application: SocketAddr,
    bytes: SocketAddr,
    to: Ports,
    inbound: Ports,
    _tasks: [JoinSet<()>; 2],
}

impl Fixture {
    pub(crate) async fn new() -> Result<Self> {
        let (application, answers) = application().await?;
        let (bytes, echo) = echo().await?;
        Ok(Self {
            application,
            bytes,
            to: Ports::free()?,
            inbound: Ports::free()?,
            _tasks: [answers, echo],
        })
    }

    /// The configuration, with these overrides of metrics.
    pub(crate) fn mesh(&self, overrides: &str) -> String {
        mesh(
            &self.to,
            &self.inbound,
            self.application,
            self.bytes,
            overrides,
        )
    }

    /// Starts the control plane and both pods.
    pub(crate) async fn start(&self, overrides: &str) -> Result<(Server, Mesh)> {
        self.start_with(overrides, "").await
    }

    /// The same, with variables of the control plane.
    async fn start_with(&self, overrides: &str, variables: &str) -> Result<(Server, Mesh)> {
        let server = Server::with_variables(&self.mesh(overrides), variables).await?;
        let mesh = Mesh::start(&server, self.to.http).await?;
        Ok((server, mesh))
    }
}

#[tokio::test]
async fn a_stock_envoys_requests_and_connections_are_counted_on_both_sides() -> Result<()> {
    let world = Fixture::new().await?;
    let variables = "PILOT_MX_ADDITIONAL_LABELS=version";
    let (server, mesh) = world.start_with("", variables).await?;
    mesh.sends_metadata_only_to_servers_without_a_tunnel()
        .await?;
    mesh.counts_requests().await?;
    mesh.counts_connections(world.to.tcp).await?;
    mesh.fills_dashboards().await?;
    server.write_mesh(&world.mesh(
        "{match: {metric: REQUEST_COUNT}, tagOverrides: {source_app: {operation: REMOVE}, \
        path: {value: 'request.url_path'}, tier: {value: \"'gold'\"}, none: {value: \"request.headers['x-none']\"}, \
        up: {value: filter_state.upstream_peer.app}, down: {value: filter_state.downstream_peer.app}, \
        label: {value: \"filter_state.downstream_peer.labels['version']\"}}}, \
        {match: {metric: REQUEST_SIZE}, disabled: true}",
    ))?;
    mesh.has_changed_labels().await?;
    server.write_mesh(&world.mesh("{disabled: true}"))?;
    mesh.is_switched_off().await
}

#[tokio::test]
async fn in_ambient_mode_server_tcp_metrics_have_the_client() -> Result<()> {
    let world = Fixture::new().await?;
    let (_server, mesh) = world.start_with("", "PILOT_ENABLE_AMBIENT=true").await?;
    mesh.counts_connections(world.to.tcp).await
}
