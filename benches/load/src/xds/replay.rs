//! A server that costs next to nothing: it records the responses to one proxy, and sends them to
//! every client.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::AggregatedDiscoveryServiceServer;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use prost::Message;
use rustc_hash::FxHashMap;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};

use crate::xds::answering::Answering;
use crate::xds::follow::Follower;
use crate::xds::grpc::{Inbox, Outbox};
use crate::xds::names::Names;
use crate::xds::run::sample_node;
use crate::xds::talk::{Protocol, ProxyStreams};

/// The options of `replay`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Plan {
    /// The server whose responses are recorded.
    #[arg(long, default_value = "127.0.0.1:15010")]
    from: SocketAddr,
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:15110")]
    listen: SocketAddr,
}

/// First responses by type URL.
type Tape = FxHashMap<String, DeltaDiscoveryResponse>;

/// Records the responses to one proxy until it is in sync, and serves them until the process is
/// stopped.
///
/// # Errors
/// If the server cannot be reached, or the address cannot be bound.
pub(crate) async fn run(plan: Plan) -> Result<()> {
    let tape = record(plan.from).await?;
    let listener = TcpListener::bind(plan.listen)
        .await
        .with_context(|| format!("cannot listen on {}", plan.listen))?;

    for (type_url, response) in &tape {
        eprintln!(
            "{type_url}: {} resources, {} bytes",
            response.resources.len(),
            response.encoded_len()
        );
    }

    eprintln!("serving on {}", plan.listen);
    let tape = Arc::new(tape);
    let service =
        AggregatedDiscoveryServiceServer::new(Answering(move |request: &DeltaDiscoveryRequest| {
            // An acknowledgement gets no response.
            let response = request
                .response_nonce
                .is_empty()
                .then(|| tape.get(&request.type_url).cloned());
            ControlFlow::Continue(response.flatten())
        }));

    tonic::transport::Server::builder()
        .initial_stream_window_size(16 << 20)
        .initial_connection_window_size(16 << 20)
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;

    Ok(())
}

/// Subscribes to a server as one proxy until it is in sync.
async fn record(from: SocketAddr) -> Result<Tape> {
    let mut client = AggregatedDiscoveryServiceClient::connect(format!("http://{from}"))
        .await
        .with_context(|| format!("cannot connect to {from}"))?
        .max_decoding_message_size(512 << 20);
    let (requests, outgoing) = mpsc::channel(64);
    let names = Names::default();
    let mut follower = Follower::default();
    let mut talk = ProxyStreams::new(Protocol::Delta);

    let send = async |outbox: Outbox| -> Result<()> {
        let mut inbox = Inbox::default();
        let mut bytes = outbox.bytes();
        while let Some(message) = inbox.next(&mut bytes)? {
            requests
                .send(DeltaDiscoveryRequest::decode(&*message.body)?)
                .await?;
        }
        Ok(())
    };

    let mut first = Outbox::default();
    talk.open(&sample_node(), &follower, &names, &mut first);
    send(first).await?;
    let mut responses = client
        .delta_aggregated_resources(ReceiverStream::new(outgoing))
        .await?
        .into_inner();
    let mut tape = Tape::default();

    while !follower.is_synced() {
        let message = tokio::time::timeout(Duration::from_secs(60), responses.message()).await;
        let response = message
            .context("no further response arrived, and the proxy is not in sync")??
            .context("the server ended the stream")?;
        let body = response.encode_to_vec();
        let mut answers = Outbox::default();
        let read = talk.read(&body)?;
        if let Some(resource_type) = read.resource_type {
            talk.answer(resource_type, &read, &mut follower, &names, &mut answers);
        }

        send(answers).await?;
        let first = tape.entry(response.type_url.clone()).or_default();
        let resources = [std::mem::take(&mut first.resources), response.resources].concat();
        *first = DeltaDiscoveryResponse {
            resources,
            removed_resources: Vec::new(),
            ..response
        };
    }

    Ok(tape)
}
