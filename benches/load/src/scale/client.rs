//! The simulated proxies: delta streams that subscribe as an Envoy does and keep a few bytes each.
//!
//! A stream asks for all clusters, then for the endpoints of these, then for all listeners and the
//! routes of these. Once it has all of them, it acknowledges what comes, and of endpoints notes the
//! update on the [`Board`]. A proxy of [`crate::xds`] also keeps names and versions of all
//! resources, some tens of kilobytes, in order to reconnect with them; these do not reconnect.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use anyhow::{Result, bail};
use prost::Message as _;
use tokio::time::Instant;

use super::board::Board;
use super::mesh;
use super::order::{place_of, update_of};
use super::sockets;
use crate::xds::connection::{Connection, Stop};
use crate::xds::delta::field;
use crate::xds::grpc::{Message, Outbox};
use crate::xds::http2::Call;
use crate::xds::peek;
use crate::xds::resource_type::ResourceType;
use crate::xds::run::node_of_sidecar;
use crate::xds::talk::{Protocol, ProxyStreams};
use crate::xds::tally::Tally;
use crate::xds::wire::{self, Response};

/// What all streams share.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) server: SocketAddr,
    pub(super) board: Board,
    pub(super) tally: Tally,
}

/// A connection with the numbers of its streams.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) streams: Range<usize>,
}

/// The progress of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// EDS resources that it has asked for and not received; `None` before the clusters.
    endpoints: Option<u32>,
    /// RDS resources that it has asked for and not received; `None` before the listeners.
    routes: Option<u32>,
    /// Whether it has asked for listeners.
    listens: bool,
    /// Whether it has received everything that it asked for.
    is_synced: bool,
}

impl Client {
    /// Connects, and follows all streams until one ends; the error says why.
    pub(super) async fn run(self, clients: Arc<Clients>) {
        if let Err(error) = self.follow(&clients).await
            && clients.tally.broken()
        {
            eprintln!("the first stream broke: {error:#}");
        }
    }

    /// Connects, and follows all streams.
    ///
    /// # Errors
    /// If the connection is refused, or one of the streams ends.
    async fn follow(&self, clients: &Clients) -> Result<()> {
        let call = Call {
            server: clients.server,
            method: ProxyStreams::method(Protocol::Delta),
            encoding: None,
            omits_versions: false,
        };
        let socket = sockets::connect(clients.server, self.number).await?;
        let firsts: Vec<Outbox> = self
            .streams
            .clone()
            .map(|stream| first_request(&clients.board, stream))
            .collect();
        let mut connection = Connection::over(socket, &call, &firsts)?;
        drop(firsts);

        let mut progress = vec![Progress::default(); self.streams.len()];
        let mut take =
            |index: usize, message: &Message<'_>, outbox: &mut Outbox| -> Result<ControlFlow<()>> {
                if let Some(progress) = progress.get_mut(index) {
                    progress.take(clients, self.streams.start + index, message, outbox)?;
                }
                Ok(ControlFlow::Continue(()))
            };
        match poll_fn(|context| connection.poll(context, &mut take)).await? {
            Stop::Ended | Stop::Enough => bail!("the server ended a stream"),
        }
    }
}

/// The first request of a stream: for all clusters.
fn first_request(board: &Board, stream: usize) -> Outbox {
    let node = node_of_sidecar(&mesh::namespace(board.namespace(stream)), stream);
    let mut outbox = Outbox::default();
    outbox.message(|out| {
        wire::put(out, field::NODE, &node.encode_to_vec());
        wire::put(out, field::TYPE_URL, url(ResourceType::Clusters));
    });
    outbox
}

/// The type URL of a type.
fn url(resource_type: ResourceType) -> &'static [u8] {
    resource_type.type_url().as_bytes()
}

/// Appends a request for resources by their names.
fn subscribe(outbox: &mut Outbox, resource_type: ResourceType, names: &[&[u8]]) {
    outbox.message(|out| {
        wire::put(out, field::TYPE_URL, url(resource_type));
        for name in names {
            wire::put_always(out, field::SUBSCRIBE, name);
        }
    });
}

impl Progress {
    /// Handles a response.
    ///
    /// # Errors
    /// If it is not a discovery response.
    fn take(
        &mut self,
        clients: &Clients,
        stream: usize,
        message: &Message<'_>,
        outbox: &mut Outbox,
    ) -> Result<()> {
        let Clients { board, tally, .. } = clients;
        let response = Response::delta(&message.body)?;
        let Some(resource_type) = response.resource_type else {
            tally.strange();
            return Ok(());
        };

        outbox.message(|out| {
            wire::put(out, field::TYPE_URL, url(resource_type));
            wire::put(out, field::NONCE, response.nonce);
        });
        self.follow(resource_type, &response, outbox);
        if resource_type == ResourceType::Endpoints {
            note(board, stream, &response);
        }

        let resources = response.resources.len();
        let removed = response.removed.len();
        tally.response(resource_type, message.wire_length, resources, removed);
        if !self.is_synced && self.endpoints == Some(0) && self.routes == Some(0) {
            self.is_synced = true;
            tally.synced(stream);
        }
        Ok(())
    }

    /// Counts what is missing, and asks for what follows from a response.
    fn follow(
        &mut self,
        resource_type: ResourceType,
        response: &Response<'_>,
        outbox: &mut Outbox,
    ) {
        if self.is_synced {
            return;
        }
        let resources = response.resources.iter();
        let count = |names: &[&[u8]]| u32::try_from(names.len()).unwrap_or(u32::MAX);
        let received = response.resources.len() + response.removed.len();
        let received = u32::try_from(received).unwrap_or(u32::MAX);
        let receive = |missing: &mut Option<u32>| {
            if let Some(missing) = missing {
                *missing = missing.saturating_sub(received);
            }
        };

        match resource_type {
            ResourceType::Clusters if self.endpoints.is_none() => {
                let names: Vec<&[u8]> = resources
                    .filter_map(|resource| peek::endpoints_of(resource.content))
                    .collect();
                self.endpoints = Some(count(&names));
                if !names.is_empty() {
                    subscribe(outbox, ResourceType::Endpoints, &names);
                }
            }
            ResourceType::Listeners if self.routes.is_none() => {
                let mut names = Vec::new();
                resources.for_each(|resource| peek::routes_of(resource.content, &mut names));
                names.sort_unstable();
                names.dedup();
                self.routes = Some(count(&names));
                if !names.is_empty() {
                    subscribe(outbox, ResourceType::Routes, &names);
                }
            }
            ResourceType::Endpoints => receive(&mut self.endpoints),
            ResourceType::Routes => receive(&mut self.routes),
            ResourceType::Clusters | ResourceType::Listeners | ResourceType::VirtualHosts => {}
        }

        if self.endpoints == Some(0) && !self.listens {
            self.listens = true;
            subscribe(outbox, ResourceType::Listeners, &[]);
        }
    }
}

/// Notes the updates in a response of endpoints.
fn note(board: &Board, stream: usize, response: &Response<'_>) {
    let now = Instant::now();
    for resource in &response.resources {
        if let Some(place) = place_of(resource.name) {
            board.receive(stream, place, update_of(resource.content), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use navarch_proto::envoy::config::cluster::v3::{Cluster, cluster};
    use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
    use prost_types::Any;

    use super::super::order::Order;
    use super::*;

    /// A response with resources of these names.
    fn response(resource_type: ResourceType, resources: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let resource = |(name, content): &(&str, Vec<u8>)| Resource {
            name: (*name).to_owned(),
            resource: Some(Any {
                type_url: resource_type.type_url().to_owned(),
                value: content.clone(),
            }),
            ..Resource::default()
        };
        let response = DeltaDiscoveryResponse {
            type_url: resource_type.type_url().to_owned(),
            nonce: "1".to_owned(),
            resources: resources.iter().map(resource).collect(),
            ..DeltaDiscoveryResponse::default()
        };
        response.encode_to_vec()
    }

    /// A cluster with endpoints from EDS.
    fn cluster(name: &str) -> (&str, Vec<u8>) {
        let cluster = Cluster {
            name: name.to_owned(),
            cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
                cluster::DiscoveryType::Eds.into(),
            )),
            ..Cluster::default()
        };
        (name, cluster.encode_to_vec())
    }

    fn clients() -> Clients {
        let order = Order {
            namespaces: 1,
            slots: 2,
        };
        Clients {
            server: "127.0.0.1:1".parse().unwrap(),
            board: Board::new(order, 1, 1),
            tally: Tally::new(1),
        }
    }

    /// Passes a response to a stream; returns the number of its requests.
    fn requests(progress: &mut Progress, clients: &Clients, body: &[u8]) -> usize {
        let message = Message {
            body: Cow::Borrowed(body),
            wire_length: body.len(),
        };
        let mut outbox = Outbox::default();
        progress.take(clients, 0, &message, &mut outbox).unwrap();
        let mut rest = outbox.bytes();
        let mut count = 0;
        while let Some((prefix, after)) = rest.split_first_chunk::<5>() {
            let [_, a, b, c, d] = *prefix;
            rest = &after[u32::from_be_bytes([a, b, c, d]) as usize..];
            count += 1;
        }
        count
    }

    #[test]
    fn a_stream_is_in_sync_when_everything_that_it_asked_for_has_arrived() {
        let clients = clients();
        let mut progress = Progress::default();
        let mut take = |resource_type, resources: &[(&str, Vec<u8>)]| {
            let body = response(resource_type, resources);
            requests(&mut progress, &clients, &body)
        };
        let eds = ["outbound|80||svc0.ns0.svc", "outbound|80||svc1.ns0.svc"];

        let clusters = eds.map(cluster);
        assert_eq!(take(ResourceType::Clusters, &clusters), 2, "ACK and EDS");
        assert_eq!(take(ResourceType::Endpoints, &[(eds[0], vec![])]), 1);
        assert_eq!(
            take(ResourceType::Endpoints, &[(eds[1], vec![])]),
            2,
            "ACK and LDS"
        );
        assert_eq!(clients.tally.in_sync(), 0);
        assert_eq!(
            take(ResourceType::Listeners, &[]),
            1,
            "no routes to ask for"
        );
        assert_eq!(clients.tally.in_sync(), 1);
        assert_eq!(take(ResourceType::Endpoints, &[(eds[0], vec![])]), 1);
    }

    #[test]
    fn an_update_is_noted_for_its_stream() {
        let clients = clients();
        let now = Instant::now();
        clients.board.begin(now);
        let mut progress = Progress::default();
        let mut content = vec![0x12, 8];
        content.extend(super::super::order::address(1).to_string().bytes());
        let body = response(
            ResourceType::Endpoints,
            &[("outbound|80||svc1.ns0.svc", content)],
        );
        requests(&mut progress, &clients, &body);
        assert_eq!(clients.board.missing(2).pairs, 1, "update 0");
        assert_eq!(clients.board.times.percentiles().count, 1);
    }
}
