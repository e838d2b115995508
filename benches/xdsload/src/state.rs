//! The state-of-the-world protocol, as Envoy speaks it.

use navarch_proto::envoy::config::core::v3::Node;
use prost::Message;

use crate::follow::{Follower, Gone};
use crate::grpc::Outbox;
use crate::kind::Kind;
use crate::names::Names;
use crate::wire::{self, Response};

/// Fields of a `DiscoveryRequest`.
mod field {
    /// The version that is held.
    pub(super) const VERSION: u8 = 1;
    /// Who asks.
    pub(super) const NODE: u8 = 2;
    /// All names asked for.
    pub(super) const NAMES: u8 = 3;
    /// What is asked for.
    pub(super) const TYPE_URL: u8 = 4;
    /// The response that is answered.
    pub(super) const NONCE: u8 = 5;
    /// Why it is refused.
    pub(super) const ERROR: u8 = 6;
}

/// Version and nonce of the last response of a kind.
#[derive(Clone, Debug, Default)]
struct Last {
    version: Vec<u8>,
    nonce: Vec<u8>,
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
            (&node.encode_to_vec(), &[]),
            follower,
            names,
            outbox,
        );
        if self.listens {
            for kind in [Kind::Endpoints, Kind::Listeners, Kind::Routes] {
                self.ask(kind, (&[], &[]), follower, names, outbox);
            }
        }
    }

    /// Takes a response in and answers; how many resources it took away.
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

        self.ask(kind, (&[], &[]), follower, names, outbox);
        if let Some(kind) = turn.kind {
            self.ask(kind, (&[], &[]), follower, names, outbox);
        }

        if !self.listens && follower.wants_listeners() {
            self.listens = true;
            self.ask(Kind::Listeners, (&[], &[]), follower, names, outbox);
        }

        turn.removed
    }

    /// Refuses a response, for this reason: the version that is held stays the one before.
    pub(crate) fn refuse(
        &mut self,
        kind: Kind,
        response: &Response<'_>,
        error: &[u8],
        follower: &Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) {
        if let Some(last) = self.last.get_mut(kind.index()) {
            last.nonce.clear();
            last.nonce.extend_from_slice(response.nonce);
        }
        self.ask(kind, (&[], error), follower, names, outbox);
    }

    /// Says who asks, where that is to be said, and what is wanted of a kind, and takes the last
    /// response, or refuses it for a reason; nothing where without names, all would be asked for.
    fn ask(
        &self,
        kind: Kind,
        (node, error): (&[u8], &[u8]),
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
            wire::put(out, field::ERROR, error);
        });
    }
}
