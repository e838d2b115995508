//! Requests with HBONE through a stock Envoy as waypoint, with certificates of Navarch's CA. A peer
//! of this test stands in for ztunnel, both in front of the waypoint and at the pods behind it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::Request;
use navarch_testkit::client;
use navarch_testkit::envoy::Envoy;
use navarch_testkit::ports::{self, Taken};
use navarch_testkit::wait::{Verbatim, until_some};
use serde_json::json;
use tokio::net::TcpListener;

use crate::hbone::{self, End, Tunnel};
use crate::mtls::{envoy, workload};
use crate::server::Server;
use crate::workload_sds::Workload;

/// The address of the waypoint's pod.
const WAYPOINT: &str = "127.0.40.1";
/// The addresses of the pods behind it, one per version.
const PODS: [&str; 2] = ["127.0.40.2", "127.0.40.3"];
/// The port of the service.
const PORT: u16 = 18_086;
const INNER: u16 = 8_080;
/// The port of the gateway.
const GATEWAY: u16 = 18_087;
/// The address of the service.
const SERVICE: &str = "10.96.40.1";
/// The host of the service.
const HOST: &str = "web.shop.svc.cluster.local";

/// An ambient pod for its own service, with these labels.
fn pod(name: &str, account: &str, ip: &str, labels: &str, ambient: bool) -> String {
    let redirection = if ambient {
        "ambient.istio.io/redirection: enabled"
    } else {
        ""
    };
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}-1, namespace: shop, labels: {{app: {name}, {labels}}}, annotations: {{{redirection}}}}}
spec: {{serviceAccountName: {account}, containers: [{{name: app, image: app}}]}}
status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: 'True'}}]}}
---
"
    )
}

/// A service with a port, and the pod that it selects.
fn service(name: &str, vip: &str, ports: [u16; 2], ip: &str, labels: &str) -> String {
    let [port, target] = ports;
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop, labels: {{{labels}}}}}
spec: {{clusterIP: {vip}, clusterIPs: [{vip}], selector: {{app: {name}}}, ports: [{{name: http, port: {port}, targetPort: {target}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {name}-1, namespace: shop}}}}]
ports: [{{name: http, port: {target}, protocol: TCP}}]
---
"
    )
}

/// A waypoint for two versions of a service: a header selects the second, one account is denied,
/// and writing is denied to everyone.
/// The service has the label `use_waypoint`.
fn mesh(use_waypoint: &str) -> String {
    let managed = "gateway.networking.k8s.io/gateway-name: way, gateway.istio.io/managed: istio.io-mesh-controller";
    let objects = [
        pod("way", "way", WAYPOINT, managed, false),
        service(
            "way",
            "10.96.40.9",
            [hbone::PORT, hbone::PORT],
            WAYPOINT,
            managed,
        ),
        pod("web", "web", PODS[0], "version: one", true),
        service(
            "web",
            SERVICE,
            [PORT, INNER],
            PODS[0],
            &format!("{use_waypoint}: 'true'"),
        ),
        pod("web-two", "web", PODS[1], "version: two", true),
        service("web-two", "10.96.40.2", [PORT, INNER], PODS[1], ""),
    ];

    objects.concat()
        + &format!(
            "apiVersion: v1
kind: Namespace
metadata: {{name: shop, labels: {{istio.io/use-waypoint: way, istio.io/dataplane-mode: ambient}}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: istio-waypoint}}
spec: {{controllerName: istio.io/mesh-controller}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: way, namespace: shop}}
spec: {{gatewayClassName: istio-waypoint, listeners: [{{name: mesh, port: 15008, protocol: HBONE}}]}}
status: {{addresses: [{{type: Hostname, value: way.shop.svc.cluster.local}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec:
  hosts: [{HOST}]
  http:
  - match: [{{headers: {{x-version: {{exact: two}}}}}}]
    route: [{{destination: {{host: web-two.shop.svc.cluster.local, port: {{number: {PORT}}}}}}}]
  - route: [{{destination: {{host: {HOST}, port: {{number: {PORT}}}}}}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: web, namespace: shop}}
spec:
  targetRefs: [{{kind: Service, name: web}}]
  action: DENY
  rules:
  - from: [{{source: {{principals: [cluster.local/ns/shop/sa/stranger]}}}}]
  - to: [{{operation: {{methods: [POST]}}}}]
"
        )
        + &edge()
}

/// A gateway that forwards all requests to the service.
fn edge() -> String {
    format!(
        "---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: shop}}
spec:
  selector: {{app: edge}}
  servers: [{{port: {{number: {GATEWAY}, name: http, protocol: HTTP}}, hosts: ['*']}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: edge, namespace: shop}}
spec:
  hosts: ['*']
  gateways: [edge]
  http: [{{route: [{{destination: {{host: {HOST}, port: {{number: {PORT}}}}}}}]}}]
"
    )
}

/// An application that responds with its name, and with the client's identity from the request
/// headers.
async fn application(name: &'static str, address: &str) -> Result<()> {
    let listener = TcpListener::bind((address, INNER))
        .await
        .with_context(|| format!("{name} at {address}"))?;
    let app = Router::new().fallback(move |request: Request| {
        let client_cert = request
            .headers()
            .get("x-forwarded-client-cert")
            .and_then(|value| value.to_str().ok());
        let client_cert = client_cert.unwrap_or("nobody").to_owned();
        async move { format!("{name} for {client_cert}") }
    });
    tokio::spawn(async move { drop(axum::serve(listener, app).await) });
    Ok(())
}

/// The response to a client's request through the waypoint.
async fn ask(client: &Workload, method: &str, headers: &str) -> Result<String> {
    let request = format!(
        "{method} / HTTP/1.1\r\nhost: {HOST}:{PORT}\r\nconnection: close\r\ncontent-length: 0\r\n{headers}\r\n"
    );
    let through = SocketAddr::new(WAYPOINT.parse()?, hbone::PORT);
    let authority = format!("{SERVICE}:{PORT}");
    let answer = hbone::send(through, client, &authority, &request, usize::MAX);
    tokio::time::timeout(Duration::from_secs(5), answer).await?
}

/// Repeats a request until the response contains all of these texts.
async fn until(client: &Workload, method: &str, headers: &str, parts: &[&str], envoy: &Envoy) {
    until_some(
        &format!("{method} {headers:?} is answered with {parts:?}"),
        async || {
            let answer = ask(client, method, headers).await;
            let is_wanted = answer
                .as_ref()
                .is_ok_and(|answer| parts.iter().all(|part| answer.contains(part)));
            if is_wanted {
                Ok(())
            } else {
                Err((answer, Verbatim(envoy.output())))
            }
        },
    )
    .await;
}

/// A mesh with a waypoint and the pods behind it.
struct Bed {
    server: Server,
    waypoint: Envoy,
    /// Where the tunnels to the pods end, one per version.
    ends: [End; 2],
    _ports: Taken,
}

impl Bed {
    /// Starts with further environment variables of the control plane, in shell syntax.
    async fn start(mesh: &str, further: &str) -> Result<Self> {
        let ports = ports::take(&[INNER, PORT, GATEWAY]).await?;
        let variables = format!(
            "PILOT_ENABLE_AMBIENT=true PILOT_ENABLE_SIDECAR_LISTENING_HBONE=false {further}"
        );
        let server = Server::with_variables(mesh, &variables).await?;
        application("one", PODS[0]).await?;
        application("two", PODS[1]).await?;
        let web = workload(&server, "web").await?;
        let at = |index: usize| End::start(PODS[index].parse::<IpAddr>()?, &web);
        let ends = [at(0)?, at(1)?];

        let labels = json!({
            "app": "way", "gateway.networking.k8s.io/gateway-name": "way",
            "gateway.networking.k8s.io/gateway-class-name": "istio-waypoint",
            "gateway.istio.io/managed": "istio.io-mesh-controller",
        });
        let metadata = json!({
            "LABELS": labels, "SERVICE_ACCOUNT": "way", "ENABLE_HBONE": "true",
            "ANNOTATIONS": {"ambient.istio.io/xfcc-include-client-identity": "true"},
        });
        let mut waypoint = envoy(&server, "waypoint", "way", WAYPOINT, metadata).await?;
        waypoint.wait_ready().await?;

        Ok(Self {
            server,
            waypoint,
            ends,
            _ports: ports,
        })
    }

    /// A ready sidecar with an account, and with further metadata.
    async fn sidecar(&self, account: &str, further: &[(&str, &str)]) -> Result<Envoy> {
        let mut metadata = json!({
            "LABELS": {"app": account}, "SERVICE_ACCOUNT": account, "ENABLE_HBONE": "true",
            "INTERCEPTION_MODE": "NONE",
        });
        for (name, value) in further {
            metadata[*name] = json!(value);
        }
        let mut sidecar = envoy(&self.server, "sidecar", account, "127.0.40.5", metadata).await?;
        sidecar.wait_ready().await?;
        Ok(sidecar)
    }
}

/// A tunnel from the waypoint to one of the pods.
fn by_waypoint(address: &str) -> Tunnel {
    Tunnel {
        identity: "spiffe://cluster.local/ns/shop/sa/way".to_owned(),
        authority: format!("{address}:{INNER}"),
    }
}

/// Fails if Envoys have rejected updates.
async fn accepted_by(envoys: &[&Envoy]) -> Result<()> {
    for envoy in envoys {
        let rejected = envoy.stats().await?.rejected();
        ensure!(
            rejected == 0,
            "{rejected} updates were rejected:\n{}",
            envoy.output()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_passes_a_waypoint_by_hbone_to_an_ambient_pod() -> Result<()> {
    let bed = Bed::start(&mesh("istio.io/ingress-use-waypoint"), "").await?;
    let Bed {
        server,
        waypoint,
        ends,
        ..
    } = &bed;

    let friend = workload(server, "friend").await?;
    let stranger = workload(server, "stranger").await?;

    let client_uri = "URI=spiffe://cluster.local/ns/shop/sa/friend";
    until(
        &friend,
        "GET",
        "",
        &["200 OK", "one for", client_uri],
        waypoint,
    )
    .await;
    until(
        &friend,
        "GET",
        "x-version: two\r\n",
        &["200 OK", "two for", client_uri],
        waypoint,
    )
    .await;
    for (end, address) in ends.iter().zip(PODS) {
        let tunnels = end.tunnels();
        ensure!(
            !tunnels.is_empty() && tunnels.iter().all(|one| *one == by_waypoint(address)),
            "{tunnels:?}"
        );
    }

    let before = ends[0].tunnels().len();
    until(&stranger, "GET", "", &["403 Forbidden"], waypoint).await;
    until(&friend, "POST", "", &["403 Forbidden"], waypoint).await;
    ensure!(
        ends[0].tunnels().len() == before,
        "a denied request does not reach the pod: {:?}",
        ends[0].tunnels()
    );

    // A gateway also uses the waypoint, with tunnels of its own, because the service is labelled
    // `istio.io/ingress-use-waypoint`.
    let metadata =
        json!({"LABELS": {"app": "edge"}, "SERVICE_ACCOUNT": "edge", "ENABLE_HBONE": "true"});
    let mut gateway = envoy(server, "router", "edge", "127.0.40.4", metadata).await?;
    gateway.wait_ready().await?;
    let edge = SocketAddr::from(([127, 0, 0, 1], GATEWAY));
    through(&gateway, edge, "one for", "sa/edge").await;
    let end = ends[0].tunnels();

    ensure!(
        end.iter().all(|one| *one == by_waypoint(PODS[0])),
        "the gateway must not bypass the waypoint: {end:?}"
    );

    // A sidecar connects to the pod directly, as with istiod.
    let sidecar = bed.sidecar("client", &[]).await?;
    through(
        &sidecar,
        SocketAddr::from(([127, 0, 0, 1], PORT)),
        "one for",
        "",
    )
    .await;
    let last = ends[0].tunnels().pop().context("no tunnel")?;
    ensure!(
        last == Tunnel {
            identity: "spiffe://cluster.local/ns/shop/sa/client".to_owned(),
            ..by_waypoint(PODS[0])
        },
        "{last:?}"
    );

    accepted_by(&[waypoint, &gateway, &sidecar]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_sends_through_the_waypoint_if_mesh_and_service_request_it() -> Result<()> {
    let mesh = mesh("navarch.io/sidecar-use-waypoint");
    let bed = Bed::start(&mesh, "NAVARCH_SIDECAR_WAYPOINTS=true").await?;
    let door = SocketAddr::from(([127, 0, 0, 1], PORT));

    let client = bed.sidecar("client", &[]).await?;
    through(&client, door, "one for", "sa/client").await;
    let reply = client::get(door, HOST, "/", &[("x-version", "two")]).await?;
    ensure!(reply.body.contains("two for"), "{reply:?}");

    // The waypoint's policy applies to a sidecar, too.
    let reply = client::send("POST", door, HOST, "/", &[]).await?;
    ensure!(reply.status == 403, "{reply:?}");
    accepted_by(&[&bed.waypoint, &client]).await?;
    drop(client);

    let stranger = bed.sidecar("stranger", &[]).await?;
    status_of(&stranger, door, 403).await;
    drop(stranger);

    // A sidecar that cannot tunnel does not bypass the waypoint.
    let declines = bed
        .sidecar("declines", &[("DISABLE_HBONE_SEND", "true")])
        .await?;
    status_of(&declines, door, 503).await;

    for (end, address) in bed.ends.iter().zip(PODS) {
        let tunnels = end.tunnels();
        ensure!(
            !tunnels.is_empty() && tunnels.iter().all(|one| *one == by_waypoint(address)),
            "{tunnels:?}"
        );
    }
    accepted_by(&[&declines]).await
}

/// Repeats a request to a sidecar until the response has this status.
async fn status_of(sidecar: &Envoy, door: SocketAddr, status: u16) {
    until_some(&format!("{door} answers with {status}"), async || {
        let reply = client::get(door, HOST, "/", &[]).await;
        if reply.as_ref().is_ok_and(|reply| reply.status == status) {
            Ok(())
        } else {
            Err((reply, Verbatim(sidecar.output())))
        }
    })
    .await;
}

/// Repeats a request to an Envoy without a tunnel until the response contains both texts.
async fn through(envoy: &Envoy, door: SocketAddr, name: &str, client_uri: &str) {
    until_some(
        &format!("{door} answers with {name:?} and {client_uri:?}"),
        async || {
            let reply = client::get(door, HOST, "/", &[]).await;
            let has = |part: &str| {
                reply
                    .as_ref()
                    .is_ok_and(|reply| reply.status == 200 && reply.body.contains(part))
            };
            if has(name) && has(client_uri) {
                Ok(())
            } else {
                Err((reply, Verbatim(envoy.output())))
            }
        },
    )
    .await;
}
