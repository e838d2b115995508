//! A simulated ztunnel that counts its addresses and forgets them.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use bytes::Bytes;
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::skim::{Skimmed, Skimmer};
use crate::ambient::ztunnel::{ADDRESS, AUTHORIZATION, DELTA, node};
use crate::xds::grpc::Outbox;

/// The window of a stream, as ztunnel's.
const STREAM_WINDOW: u32 = 4 << 20;
/// The window of the connection: not smaller than that of its only stream.
const CONNECTION_WINDOW: u32 = 5 << 20;

/// A response with addresses, of one ztunnel.
#[derive(Debug)]
pub(super) struct Arrived {
    /// The number of the ztunnel.
    pub(super) ztunnel: usize,
    /// When all of it had arrived.
    pub(super) at: Instant,
    /// Resources in it, added and removed.
    pub(super) addresses: usize,
    pub(super) bytes: u64,
}

/// Connects, subscribes to all addresses and policies, and reports each response with addresses
/// until the receiver is dropped.
///
/// # Errors
/// If the stream fails, or the server ends it.
pub(super) async fn run(
    server: SocketAddr,
    ztunnel: usize,
    sender: UnboundedSender<Arrived>,
) -> Result<()> {
    let socket = TcpStream::connect(server).await?;
    socket.set_nodelay(true)?;
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake::<_, Bytes>(socket)
        .await?;

    let stream = follow(server, ztunnel, client, &sender);
    tokio::select! {
        ended = stream => ended,
        ended = connection => {
            ended?;
            anyhow::bail!("the server closed the connection")
        }
    }
}

/// Follows a stream on a new connection.
async fn follow(
    server: SocketAddr,
    ztunnel: usize,
    client: h2::client::SendRequest<Bytes>,
    sender: &UnboundedSender<Arrived>,
) -> Result<()> {
    let request = http::Request::post(format!("http://{server}{DELTA}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let mut client = client.ready().await?;
    let (response, mut requests) = client.send_request(request, false)?;
    requests.send_data(subscriptions(ztunnel), false)?;
    let mut body = response.await?.into_body();
    let mut skimmer = Skimmer::default();

    loop {
        let chunk = body.data().await.context("the server ended the stream")??;
        body.flow_control().release_capacity(chunk.len())?;
        let mut rest = &chunk[..];
        while let Some(response) = skimmer.next(&mut rest)? {
            requests.send_data(acknowledgement(&response), false)?;
            if response.type_url != ADDRESS.as_bytes() {
                continue;
            }
            let arrived = Arrived {
                ztunnel,
                at: Instant::now(),
                addresses: response.resources + response.removed,
                bytes: response.bytes,
            };
            if sender.send(arrived).is_err() {
                return Ok(());
            }
        }
    }
}

/// A message with its gRPC prefix.
fn framed(request: &DeltaDiscoveryRequest, outbox: &mut Outbox) {
    outbox.message(|out| out.extend(request.encode_to_vec()));
}

/// The first requests: for all addresses and all policies.
fn subscriptions(ztunnel: usize) -> Bytes {
    let mut outbox = Outbox::default();
    for (type_url, node) in [(ADDRESS, Some(node(ztunnel))), (AUTHORIZATION, None)] {
        let request = DeltaDiscoveryRequest {
            node,
            type_url: type_url.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        framed(&request, &mut outbox);
    }
    Bytes::copy_from_slice(outbox.bytes())
}

/// The acknowledgement of a response.
fn acknowledgement(response: &Skimmed) -> Bytes {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let request = DeltaDiscoveryRequest {
        type_url: text(&response.type_url),
        response_nonce: text(&response.nonce),
        ..DeltaDiscoveryRequest::default()
    };
    let mut outbox = Outbox::default();
    framed(&request, &mut outbox);
    Bytes::copy_from_slice(outbox.bytes())
}
