//! The state-of-the-world protocol, as Envoy implements it.

use navarch_proto::envoy::config::core::v3::Node;
use prost::Message;

use crate::xds::follow::{Follower, Gone};
use crate::xds::grpc::Outbox;
use crate::xds::kind::Kind;
use crate::xds::names::Names;
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
        self.listens = follower.held(Kind::Clusters).next().is_some();
        self.ask(
            Kind::Clusters,
            &node.encode_to_vec(),
            follower,
            names,
            outbox,
        );
        if self.listens {
            for kind in [Kind::Endpoints, Kind::Listeners, Kind::Routes] {
                self.ask(kind, &[], follower, names, outbox);
            }
        }
    }

    /// Applies and acknowledges a response, and returns how many resources it removed.
    pub(crate) fn answer(
        &mut self,
        kind: Kind,
        response: &Response<'_>,
        follower: &mut Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) -> usize {
        let gone = match kind {
            Kind::Clusters | Kind::Listeners => Gone::Others,
            Kind::Endpoints | Kind::Routes | Kind::VirtualHosts => Gone::These(&[]),
        };
        let turn = follower.take(names, kind, &response.resources, gone);

        if let Some(last) = self.last.get_mut(kind.index()) {
            for (last, now) in [
                (&mut last.version, response.version),
                (&mut last.nonce, response.nonce),
            ] {
                last.clear();
                last.extend_from_slice(now);
            }
        }

        self.ask(kind, &[], follower, names, outbox);
        if let Some(kind) = turn.kind {
            self.ask(kind, &[], follower, names, outbox);
        }

        if !self.listens && follower.wants_listeners() {
            self.listens = true;
            self.ask(Kind::Listeners, &[], follower, names, outbox);
        }

        turn.removed
    }

    /// Appends a request: with the node in the first one, the subscription to a type, and the
    /// acknowledgement of the last response. Appends none if the request would have no names, which
    /// would mean a wildcard subscription.
    fn ask(
        &self,
        kind: Kind,
        node: &[u8],
        follower: &Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) {
        let Some(last) = self.last.get(kind.index()) else {
            return;
        };

        let is_by_name = match kind {
            Kind::Endpoints | Kind::Routes => true,
            Kind::Clusters | Kind::Listeners | Kind::VirtualHosts => false,
        };
        if is_by_name && last.nonce.is_empty() && follower.wanted(kind).next().is_none() {
            return;
        }

        let texts = names.texts();
        outbox.message(|out| {
            wire::put(out, field::VERSION, &last.version);
            wire::put(out, field::NODE, node);
            for name in follower.wanted(kind) {
                wire::put_always(out, field::NAMES, texts.name(kind, name));
            }
            wire::put(out, field::TYPE_URL, kind.type_url().as_bytes());
            wire::put(out, field::NONCE, &last.nonce);
        });
    }
}
