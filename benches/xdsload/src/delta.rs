//! The delta protocol, as Envoy speaks it.

use std::collections::BTreeMap;

use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::{DecodeError, Message};

use crate::follow::{Came, Follower};
use crate::kind::Kind;
use crate::names::{Id, Names};
use crate::talk::{Answer, Seen};
use crate::wire::DeltaResponse;

/// One stream.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    /// Whether listeners have been asked for.
    listens: bool,
    /// Whether virtual hosts have been asked for.
    takes_hosts: bool,
}

impl Delta {
    /// The first requests of a stream: clusters, and, where something is held from an earlier one, all that it watched.
    pub(crate) fn open(&mut self, node: &Node, follower: &Follower, names: &Names) -> Vec<Bytes> {
        let first = DeltaDiscoveryRequest { node: Some(node.clone()), ..request(Kind::Clusters) };
        let is_back = follower.held(Kind::Clusters).next().is_some();
        self.listens = is_back;
        self.takes_hosts = is_back && follower.wants_hosts();
        let mut requests = vec![with_versions(first, Kind::Clusters, follower, names)];
        if is_back {
            for kind in [Kind::Endpoints, Kind::Listeners, Kind::Routes, Kind::VirtualHosts] {
                let wanted = match kind {
                    Kind::Endpoints | Kind::Routes => follower.wanted(kind),
                    Kind::Clusters | Kind::Listeners | Kind::VirtualHosts => Vec::new(),
                };
                let subscribe = texts(names, &wanted);
                if subscribe.is_empty() && kind != Kind::Listeners && kind != Kind::VirtualHosts
                    || kind == Kind::VirtualHosts && !self.takes_hosts
                {
                    continue;
                }
                let request = DeltaDiscoveryRequest { resource_names_subscribe: subscribe, ..request(kind) };
                requests.push(with_versions(request, kind, follower, names));
            }
        }
        requests.iter().map(encoded).collect()
    }

    /// Takes a response in; says what to send.
    pub(crate) fn answer(
        &mut self,
        body: Bytes,
        follower: &mut Follower,
        names: &Names,
    ) -> Result<Answer, DecodeError> {
        let response = DeltaResponse::decode(body)?;
        let Some(kind) = Kind::of(&response.type_url) else { return Ok(Answer::default()) };
        let empty = Bytes::new();
        let came: Vec<Came<'_>> = response
            .resources
            .iter()
            .map(|resource| Came {
                name: &resource.name,
                version: &resource.version,
                content: resource.content.as_ref().map_or(&empty, |content| &content.value),
            })
            .collect();
        let turn = follower.take(names, kind, &came, &response.removed);
        let seen = Seen { kind, resources: response.resources.len(), removed: response.removed.len() };
        let ack = DeltaDiscoveryRequest { response_nonce: response.nonce, ..request(kind) };
        let mut requests = vec![encoded(&ack)];
        if let Some(kind) = turn.kind.filter(|_| !turn.more.is_empty() || !turn.less.is_empty()) {
            requests.push(encoded(&DeltaDiscoveryRequest {
                resource_names_subscribe: texts(names, &turn.more),
                resource_names_unsubscribe: texts(names, &turn.less),
                ..request(kind)
            }));
        }
        if !self.takes_hosts && follower.wants_hosts() {
            self.takes_hosts = true;
            requests.push(encoded(&request(Kind::VirtualHosts)));
        }
        if !self.listens && follower.wants_listeners() {
            self.listens = true;
            requests.push(encoded(&request(Kind::Listeners)));
        }
        Ok(Answer { seen: Some(seen), requests })
    }
}

/// A request of a kind that says nothing else.
fn request(kind: Kind) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { type_url: kind.type_url().to_owned(), ..DeltaDiscoveryRequest::default() }
}

/// Adds what is held of a kind.
fn with_versions(
    request: DeltaDiscoveryRequest,
    kind: Kind,
    follower: &Follower,
    names: &Names,
) -> DeltaDiscoveryRequest {
    let versions: BTreeMap<String, String> =
        follower.held(kind).map(|(name, version)| (names.text(name), names.text(version))).collect();
    DeltaDiscoveryRequest { initial_resource_versions: versions, ..request }
}

/// Names as they go on the wire.
fn texts(names: &Names, ids: &[Id]) -> Vec<String> {
    ids.iter().map(|id| names.text(*id)).collect()
}

/// A request as bytes.
fn encoded(request: &DeltaDiscoveryRequest) -> Bytes {
    request.encode_to_vec().into()
}
