//! The state-of-the-world protocol, as Envoy speaks it.

use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DiscoveryRequest;
use prost::{DecodeError, Message};

use crate::follow::{Came, Follower};
use crate::kind::Kind;
use crate::names::Names;
use crate::peek;
use crate::talk::{Answer, Seen};
use crate::wire::StateResponse;

/// Version and nonce of the last response of a kind.
#[derive(Clone, Debug, Default)]
struct Last {
    /// The version.
    version: String,
    /// The nonce.
    nonce: String,
}

/// One stream. Versions outlive it, nonces do not.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By kind.
    last: [Last; 5],
    /// Whether listeners have been asked for.
    listens: bool,
}

impl State {
    /// The first requests of a stream.
    pub(crate) fn open(&mut self, node: &Node, follower: &Follower, names: &Names) -> Vec<Bytes> {
        for last in &mut self.last {
            last.nonce.clear();
        }
        let is_back = follower.held(Kind::Clusters).next().is_some();
        self.listens = is_back;
        let first = DiscoveryRequest { node: Some(node.clone()), ..self.request(Kind::Clusters, follower, names) };
        let mut requests = vec![first];
        if is_back {
            let later = [Kind::Endpoints, Kind::Listeners, Kind::Routes];
            requests.extend(later.into_iter().map(|kind| self.request(kind, follower, names)));
            requests.retain(is_meant);
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
        let response = StateResponse::decode(body)?;
        let Some(kind) = Kind::of(&response.type_url) else { return Ok(Answer::default()) };
        let version = Bytes::from(response.version.clone());
        let resource_names: Vec<Bytes> = response.resources.iter().map(peek::name_of).collect();
        let came: Vec<Came<'_>> = resource_names
            .iter()
            .zip(&response.resources)
            .map(|(name, content)| Came { name, version: &version, content: &content.value })
            .collect();
        // Of clusters and listeners, what is not there is gone.
        let gone = match kind {
            Kind::Clusters | Kind::Listeners => follower.others(kind, names, &resource_names),
            Kind::Endpoints | Kind::Routes | Kind::VirtualHosts => Vec::new(),
        };
        let turn = follower.take(names, kind, &came, &gone);
        if let Some(last) = self.last.get_mut(kind.index()) {
            *last = Last { version: response.version, nonce: response.nonce };
        }
        let seen = Seen { kind, resources: response.resources.len(), removed: gone.len() };
        let mut requests = vec![self.request(kind, follower, names)];
        if let Some(kind) = turn.kind.filter(|_| !turn.more.is_empty() || !turn.less.is_empty()) {
            requests.push(self.request(kind, follower, names));
        }
        if !self.listens && follower.wants_listeners() {
            self.listens = true;
            requests.push(self.request(Kind::Listeners, follower, names));
        }
        requests.retain(is_meant);
        Ok(Answer { seen: Some(seen), requests: requests.iter().map(encoded).collect() })
    }

    /// A request that says what is wanted of a kind and takes the last response.
    fn request(&self, kind: Kind, follower: &Follower, names: &Names) -> DiscoveryRequest {
        let last = self.last.get(kind.index()).cloned().unwrap_or_default();
        let wanted = match kind {
            Kind::Endpoints | Kind::Routes => follower.wanted(kind),
            Kind::Clusters | Kind::Listeners | Kind::VirtualHosts => Vec::new(),
        };
        DiscoveryRequest {
            type_url: kind.type_url().to_owned(),
            version_info: last.version,
            response_nonce: last.nonce,
            resource_names: wanted.iter().map(|id| names.text(*id)).collect(),
            ..DiscoveryRequest::default()
        }
    }
}

/// Whether a request may be sent: without names, those of EDS and RDS would ask for everything.
fn is_meant(request: &DiscoveryRequest) -> bool {
    let by_name = [Kind::Endpoints, Kind::Routes].iter().any(|kind| kind.type_url() == request.type_url);
    !by_name || !request.resource_names.is_empty() || !request.response_nonce.is_empty()
}

/// A request as bytes.
fn encoded(request: &DiscoveryRequest) -> Bytes {
    request.encode_to_vec().into()
}
