//! Istio's metrics of a stock Envoy as waypoint, produced by its agent: source and destination of
//! connections through its tunnels.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use navarch_testkit::ports;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::Proof;
use crate::hbone::{self, End};
use crate::metrics::{until, value};
use crate::pod::Pod;
use crate::server::Server;
use crate::workload_sds::Workload;

/// The addresses of the waypoint and of the pod behind it.
const WAYPOINT: &str = "127.0.42.1";
const POD: &str = "127.0.42.2";
/// The address of the service, its ports, and the pod's ports: for HTTP and for TCP.
const SERVICE: &str = "10.96.42.1";
const PORTS: [u16; 2] = [80, 90];
const INNER: [u16; 2] = [8_080, 8_090];
/// The host of the service.
const HOST: &str = "web.shop.svc.cluster.local";

/// The labels of both sides.
const LABELS: [&str; 14] = [
    "reporter=\"waypoint\"",
    "source_workload=\"friend-v1\"",
    "source_canonical_service=\"friend\"",
    "source_canonical_revision=\"v1\"",
    "source_workload_namespace=\"shop\"",
    "source_principal=\"spiffe://cluster.local/ns/shop/sa/friend\"",
    "source_cluster=\"Kubernetes\"",
    "destination_workload=\"web\"",
    "destination_workload_namespace=\"shop\"",
    "destination_principal=\"spiffe://cluster.local/ns/shop/sa/web\"",
    "destination_canonical_service=\"web\"",
    "destination_service_name=\"web\"",
    "destination_service=\"web.shop.svc.cluster.local\"",
    "connection_security_policy=\"mutual_tls\"",
];

/// A ready pod with these labels and annotations.
fn pod(name: &str, ip: &str, labels: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, labels: {{{labels}}}, annotations: {{{annotations}}}}}
spec: {{serviceAccountName: web, containers: [{{name: app, image: app}}]}}
status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: 'True'}}]}}
---
"
    )
}

/// A service with ports (name, own and the pod's), and its pod, which has the same name.
fn service(name: &str, vip: &str, ip: &str, ports: &[(&str, u16, u16)]) -> String {
    let list = |text: &dyn Fn(&(&str, u16, u16)) -> String| {
        ports.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    let declared = list(&|(name, port, target)| {
        format!("{{name: {name}, port: {port}, targetPort: {target}}}")
    });
    let targets =
        list(&|(name, _, target)| format!("{{name: {name}, port: {target}, protocol: TCP}}"));

    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{clusterIP: {vip}, clusterIPs: [{vip}], selector: {{app: {name}}}, ports: [{declared}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {name}, namespace: shop}}}}]
ports: [{targets}]
---
"
    )
}

/// A waypoint for a service with two ports, whose policy denies writing requests.
fn mesh() -> String {
    let managed = "gateway.networking.k8s.io/gateway-name: way, gateway.istio.io/managed: istio.io-mesh-controller";
    let of_way = [("mesh", hbone::PORT, hbone::PORT)];
    let of_web = [("http", PORTS[0], INNER[0]), ("tcp", PORTS[1], INNER[1])];

    pod("way", WAYPOINT, &format!("app: way, {managed}"), "")
        + &service("way", "10.96.42.9", WAYPOINT, &of_way)
        + &pod(
            "web",
            POD,
            "app: web",
            "ambient.istio.io/redirection: enabled",
        )
        + &service("web", SERVICE, POD, &of_web)
        + "apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio.io/use-waypoint: way, istio.io/dataplane-mode: ambient}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio-waypoint}
spec: {controllerName: istio.io/mesh-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: way, namespace: shop}
spec: {gatewayClassName: istio-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}
status: {addresses: [{type: Hostname, value: way.shop.svc.cluster.local}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.svc.cluster.local]
  http:
  - match: [{method: {exact: POST}}]
    directResponse: {status: 403}
  - route: [{destination: {host: web.shop.svc.cluster.local, port: {number: 80}}}]
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: mesh, namespace: istio-system}
spec: {metrics: [{providers: [{name: prometheus}], reportingInterval: 1s}]}
"
}

/// An application with an HTTP server on one port and an echo server on the other.
async fn application() -> Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    let http = TcpListener::bind((POD, INNER[0])).await?;
    let app = Router::new().fallback(|| async { "web" });
    tasks.spawn(async move { drop(axum::serve(http, app).await) });
    let bytes = TcpListener::bind((POD, INNER[1])).await?;
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = bytes.accept().await {
            let (mut reader, mut writer) = stream.split();
            drop(tokio::io::copy(&mut reader, &mut writer).await);
        }
    });
    Ok(tasks)
}

/// Issues a certificate for a service account.
async fn workload(server: &Server, account: &str) -> Result<Workload> {
    let subject = format!("system:serviceaccount:shop:{account}");
    let token = Proof::Token(server.issuer.token(serde_json::json!({ "sub": subject })));
    let Proof::Certificate(chain, key) = server.prove_by_certificate(&token).await? else {
        anyhow::bail!("no certificate");
    };
    Ok(Workload {
        chain,
        key,
        roots: server.root(),
    })
}

/// Sends bytes through the waypoint to a port of the service until the response has the wanted
/// prefix.
async fn ask(client: &Workload, port: u16, bytes: &str, wanted: &str, pod: &Pod) -> Result<()> {
    let through = SocketAddr::new(WAYPOINT.parse()?, hbone::PORT);
    let end = Instant::now() + Duration::from_secs(60);

    loop {
        let authority = format!("{SERVICE}:{port}");

        // The echo server keeps connections open.
        let most = if port == PORTS[1] {
            wanted.len()
        } else {
            usize::MAX
        };

        let answer = hbone::send(through, client, &authority, bytes, most);
        let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
        if answer.as_ref().is_ok_and(|answer| {
            answer
                .as_ref()
                .is_ok_and(|answer| answer.starts_with(wanted))
        }) {
            return Ok(());
        }

        ensure!(
            Instant::now() < end,
            "{bytes:?}: wanted {wanted:?}, got {answer:?}\n{}",
            pod.log()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waypoint_metrics_have_source_and_destination() -> Result<()> {
    let _ports = ports::take(&INNER).await?;
    let server = Server::with_variables(&mesh(), "PILOT_ENABLE_AMBIENT=true").await?;
    let _application = application().await?;
    let _end = End::start(POD.parse::<IpAddr>()?, &workload(&server, "web").await?)?;
    let labels = [
        ("app", "way"),
        ("gateway.networking.k8s.io/gateway-name", "way"),
        (
            "gateway.networking.k8s.io/gateway-class-name",
            "istio-waypoint",
        ),
        ("gateway.istio.io/managed", "istio.io-mesh-controller"),
    ];

    let variables = [
        ("POD_NAME", "way"),
        ("INSTANCE_IP", WAYPOINT),
        ("ISTIO_META_ENABLE_HBONE", "true"),
    ];
    let mut way = Pod::start_as(&server, "waypoint", &labels, &variables)?;
    way.wait_ready().await?;
    let friend = workload(&server, "friend").await?;

    let http = |method: &str| {
        format!(
            "{method} / HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        )
    };
    ask(&friend, PORTS[0], &http("GET"), "HTTP/1.1 200", &way).await?;
    ask(&friend, PORTS[0], &http("POST"), "HTTP/1.1 403", &way).await?;
    ask(&friend, PORTS[1], "bytes", "bytes", &way)
        .await
        .context("a connection")?;

    let with = |outcome: &'static str| [&LABELS[..], &[outcome]].concat();
    let answered = with(
        "request_protocol=\"http\",response_code=\"200\",grpc_response_status=\"\",response_flags=\"-\"",
    );
    let is_counted = |metrics: &str| value(metrics, "istio_requests_total", &answered) >= Some(1);
    let metrics = until(&way, "a request", is_counted).await;

    for name in [
        "request_duration_milliseconds",
        "request_bytes",
        "response_bytes",
    ] {
        let count = value(&metrics, &format!("istio_{name}_count"), &answered);
        ensure!(
            count == value(&metrics, "istio_requests_total", &answered),
            "{name}: {count:?}"
        );
    }

    let denied = [
        LABELS[0],
        LABELS[5],
        "destination_workload=\"unknown\"",
        "response_code=\"403\"",
    ];

    until(&way, "the denied request", |metrics| {
        value(metrics, "istio_requests_total", &denied) >= Some(1)
    })
    .await;
    let bytes = with("request_protocol=\"tcp\"");
    let closed = |metrics: &str| {
        let of = |name: &str| value(metrics, &format!("istio_tcp_{name}_total"), &bytes);
        of("connections_opened") >= Some(1)
            && of("connections_closed") >= Some(1)
            && of("sent_bytes") >= Some(5)
    };

    until(&way, "a connection", closed).await;
    Ok(())
}
