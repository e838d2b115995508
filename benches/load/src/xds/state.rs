//! The state-of-the-world protocol, as Envoy implements it.

use navarch_proto::envoy::config::core::v3::Node;
use prost::Message;

use crate::xds::follow::{Follower, Gone};
use crate::xds::grpc::Outbox;
use crate::xds::names::Names;
use crate::xds::resource_type::ResourceType;
use crate::xds::wire::{self, Response};

/// Field numbers of a `DiscoveryRequest`.
mod field {
    /// `version_info`.
    pub(super) const VERSION: u8 = 1;
    /// `node`.
    pub(super) const NODE: u8 = 2;
    /// `resource_names`.
    pub(super) const NAMES: u8 = 3;
    /// `type_url`.
    pub(super) const TYPE_URL: u8 = 4;
    /// `response_nonce`.
    pub(super) const NONCE: u8 = 5;
}

/// Version and nonce of the last response of a type.
#[derive(Clone, Debug, Default)]
struct Last {
    version: Vec<u8>,
    nonce: Vec<u8>,
}

/// The state of the protocol. Versions outlive a stream, nonces do not.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By type.
    last: [Last; 5],
    /// Whether it has subscribed to listeners.
    listens: bool,
}

impl State {
    /// The first requests of a stream.
    pub(crate) fn open(
        &mut self,
        node: &Node,
        follower: &Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) {
        for last in &mut self.last {
            last.nonce.clear();
        }
        self.listens = follower.held(ResourceType::Clusters).next().is_some();
        self.ask(
            ResourceType::Clusters,
            &node.encode_to_vec(),
            follower,
            names,
            outbox,
        );
        if self.listens {
            for resource_type in [
                ResourceType::Endpoints,
                ResourceType::Listeners,
                ResourceType::Routes,
            ] {
                self.ask(resource_type, &[], follower, names, outbox);
            }
        }
    }

    /// Applies and acknowledges a response, and returns how many resources it removed.
    pub(crate) fn answer(
        &mut self,
        resource_type: ResourceType,
        response: &Response<'_>,
        follower: &mut Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) -> usize {
        let gone = match resource_type {
            ResourceType::Clusters | ResourceType::Listeners => Gone::Others,
            ResourceType::Endpoints | ResourceType::Routes | ResourceType::VirtualHosts => {
                Gone::These(&[])
            }
        };
        let turn = follower.take(names, resource_type, &response.resources, gone);

        if let Some(last) = self.last.get_mut(resource_type.index()) {
            for (last, now) in [
                (&mut last.version, response.version),
                (&mut last.nonce, response.nonce),
            ] {
                last.clear();
                last.extend_from_slice(now);
            }
        }

        self.ask(resource_type, &[], follower, names, outbox);
        if let Some(resource_type) = turn.resource_type {
            self.ask(resource_type, &[], follower, names, outbox);
        }

        if !self.listens && follower.wants_listeners() {
            self.listens = true;
            self.ask(ResourceType::Listeners, &[], follower, names, outbox);
        }

        turn.removed
    }

    /// Appends a request: with the node in the first one, the subscription to a type, and the
    /// acknowledgement of the last response. Appends none if the request would have no names, which
    /// would mean a wildcard subscription.
    fn ask(
        &self,
        resource_type: ResourceType,
        node: &[u8],
        follower: &Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) {
        let Some(last) = self.last.get(resource_type.index()) else {
            return;
        };

        let is_by_name = match resource_type {
            ResourceType::Endpoints | ResourceType::Routes => true,
            ResourceType::Clusters | ResourceType::Listeners | ResourceType::VirtualHosts => false,
        };
        if is_by_name && last.nonce.is_empty() && follower.wanted(resource_type).next().is_none() {
            return;
        }

        let texts = names.texts();
        outbox.message(|out| {
            wire::put(out, field::VERSION, &last.version);
            wire::put(out, field::NODE, node);
            for name in follower.wanted(resource_type) {
                wire::put_always(out, field::NAMES, texts.name(resource_type, name));
            }
            wire::put(out, field::TYPE_URL, resource_type.type_url().as_bytes());
            wire::put(out, field::NONCE, &last.nonce);
        });
    }
}
