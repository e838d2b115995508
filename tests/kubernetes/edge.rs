//! A gateway whose direct responses come from a VirtualService: a request from outside shows which
//! configuration is in force.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use navarch_testkit::bookshop::{self, GATEWAY};
use navarch_testkit::client;
use navarch_testkit::cluster::Writer;
use navarch_testkit::envoy::{AdsProtocol, Envoy};
use navarch_testkit::wait::{self, until_some, wanted};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Writes the gateway's responses.
pub(crate) struct Edge {
    /// Writes objects.
    pub(crate) writer: Writer,
}

/// The Gateway, for any host on the sample's port.
pub(crate) fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "edge", "namespace": "edge"},
        "spec": {
            "selector": {"istio": "ingressgateway"},
            "servers": [{"port": {"number": GATEWAY.port(), "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}],
        },
    })
}

/// A VirtualService with a direct response of this status.
pub(crate) fn answer(name: &str, status: u16) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": name, "namespace": "edge"},
        "spec": {
            "hosts": [format!("{name}.example.com")], "gateways": ["edge"],
            "http": [{"directResponse": {"status": status}}],
        },
    })
}

/// The ConfigMap of mesh config. The gateway has no certificates, so automatic mutual TLS is off.
pub(crate) fn mesh(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "istio-system"},
        "data": {"mesh": format!("enableAutoMtls: false\n{text}")},
    })
}

/// An object with a label.
pub(crate) fn labelled(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["labels"] = json!({key: value});
    object
}

impl Edge {
    /// Uses this writer.
    pub(crate) async fn open(writer: Writer) -> Result<Self> {
        writer.put(&gateway()).await?;
        writer.put(&mesh("istio", "")).await?;
        Ok(Self { writer })
    }

    /// Sets the response's status for `<name>.example.com`.
    pub(crate) async fn answer(&self, name: &str, status: u16) -> Result<()> {
        self.writer.put(&answer(name, status)).await
    }
}

/// Starts the gateway and waits until it has its configuration.
pub(crate) async fn start_gateway(xds: SocketAddr) -> Result<Envoy> {
    let mut envoy = bookshop::gateway(xds, AdsProtocol::Delta).await?;
    envoy.wait_ready().await?;
    Ok(envoy)
}

/// The status of the gateway's response for `<name>.example.com`; 0 without a response.
pub(crate) async fn ask(name: &str) -> u16 {
    let reply = client::get(GATEWAY, &format!("{name}.example.com"), "/", &[]).await;
    reply.map_or(0, |reply| reply.status.as_u16())
}

/// Waits until the gateway responds with this status, and returns how long that took.
pub(crate) async fn expect(name: &str, status: u16) -> Duration {
    let begun = Instant::now();
    until_some(&format!("{name} answers {status}"), async || {
        wanted(ask(name).await, |got| *got == status)
    })
    .await;
    begun.elapsed()
}

/// Waits until a condition holds, and returns how long that took.
pub(crate) async fn eventually<F: Future<Output = bool>>(
    what: &str,
    holds: impl Fn() -> F,
) -> Duration {
    let begun = Instant::now();
    wait::until(what, holds).await;
    begun.elapsed()
}
