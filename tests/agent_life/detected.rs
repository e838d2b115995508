//! Two stock Envoys with mutual TLS, and a port without a declared protocol: the server recognizes
//! HTTP by the ALPN protocols of the client, which Istio's filter `istio.alpn` would set.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::extract::Request;
use navarch_testkit::client;
use navarch_testkit::ports;
use rustls::server::Acceptor;
use tokio::task::JoinSet;

use crate::metrics::{Mesh, POD};
use crate::server::Server;
use crate::web;

/// How long a connection may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
/// A host outside the mesh, to which clients originate TLS of their own.
const OUTSIDE: &str = "out.example";

/// The ports of the listeners.
struct Ports {
    /// The client's port for the service `web`.
    web: u16,
    /// The client's port for the host outside.
    outside: u16,
    /// The inbound port of the server's sidecar.
    inbound: u16,
}

/// The service `web` with a port whose protocol is detected, a client, and a host outside.
fn mesh(ports: &Ports, application: SocketAddr, outside: SocketAddr) -> String {
    let to_web = ports.web;
    let to_outside = ports.outside;
    let web = web::strict(POD, to_web, ports.inbound, application)
        .replace("protocol: HTTP, name: http", "name: main")
        .replace("name: http", "name: main");

    format!(
        r"{web}  egress: [{{hosts: ['none/*']}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: client, namespace: shop}}
spec:
  workloadSelector: {{labels: {{app: client}}}}
  egress:
  - port: {{number: {to_web}, protocol: HTTP, name: http}}
    bind: 127.0.0.1
    captureMode: NONE
    hosts: [shop/web.shop.svc.cluster.local]
  - port: {{number: {to_outside}, protocol: HTTP, name: http}}
    bind: 127.0.0.1
    captureMode: NONE
    hosts: [shop/{OUTSIDE}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: web, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  action: DENY
  rules: [{{to: [{{operation: {{paths: [/secret]}}}}]}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: outside, namespace: shop}}
spec:
  hosts: [{OUTSIDE}]
  location: MESH_EXTERNAL
  ports: [{{number: {to_outside}, name: http, protocol: HTTP}}]
  resolution: STATIC
  endpoints: [{{address: {}, ports: {{http: {}}}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: outside, namespace: shop}}
spec:
  host: {OUTSIDE}
  trafficPolicy: {{tls: {{mode: SIMPLE, sni: {OUTSIDE}, insecureSkipVerify: true}}}}
",
        outside.ip(),
        outside.port()
    )
}

/// An application that responds with the headers of the request, one per line.
async fn application() -> Result<(SocketAddr, JoinSet<()>)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = axum::Router::new().fallback(|request: Request| async move {
        let lines = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {value:?}\n"));
        lines.collect::<String>()
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(axum::serve(listener, app).await) });
    Ok((address, tasks))
}

/// A server that reports the ALPN protocols of clients and closes the connection.
fn alpn_reader() -> Result<(SocketAddr, Receiver<Vec<String>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (send, offered) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Some(protocols) = offered_protocols(stream)
                && send.send(protocols).is_err()
            {
                return;
            }
        }
    });
    Ok((address, offered))
}

/// The ALPN protocols of a ClientHello.
fn offered_protocols(mut stream: impl Read) -> Option<Vec<String>> {
    let mut acceptor = Acceptor::default();
    loop {
        if acceptor.read_tls(&mut stream).ok()? == 0 {
            return None;
        }
        if let Some(accepted) = acceptor.accept().ok()? {
            let hello = accepted.client_hello();
            let protocols = hello.alpn().into_iter().flatten();
            return Some(
                protocols
                    .map(|name| String::from_utf8_lossy(name).into_owned())
                    .collect(),
            );
        }
    }
}

#[tokio::test]
async fn http_on_a_port_without_a_declared_protocol_is_http_to_the_server() -> Result<()> {
    let (application, _tasks) = application().await?;
    let (outside, offered) = alpn_reader()?;
    let ports = Ports {
        web: ports::free()?,
        outside: ports::free()?,
        inbound: ports::free()?,
    };
    let server = Server::with_mesh(&mesh(&ports, application, outside)).await?;
    let mesh = Mesh::start(&server, ports.web).await?;

    let reply = mesh.get("/public").await?;
    let headers = &reply.body;
    ensure!(reply.status == 200, "{}: {headers}", reply.status);
    ensure!(
        headers.contains("x-forwarded-client-cert")
            && headers.contains("URI=spiffe://cluster.local/ns/shop/sa/web"),
        "the application receives the client's identity: {headers}"
    );
    ensure!(
        !headers.contains("x-envoy-peer-metadata"),
        "the application does not receive headers between proxies: {headers}"
    );

    let denied = mesh.get("/secret").await?;
    ensure!(
        denied.status == 403,
        "the policy denies the request: {}",
        denied.status
    );

    // For TLS to hosts outside the mesh, Envoy offers its default ALPN protocols.
    let front = SocketAddr::from(([127, 0, 0, 1], ports.outside));
    let host = format!("{OUTSIDE}:{}", ports.outside);
    let reply = client::get(front, &host, "/", &[]).await;
    let protocols = tokio::task::spawn_blocking(move || offered.recv_timeout(TIMEOUT))
        .await?
        .with_context(|| format!("no TLS connection arrived: {reply:?}"))?;
    ensure!(protocols == ["http/1.1"], "{protocols:?}");

    Ok(())
}
