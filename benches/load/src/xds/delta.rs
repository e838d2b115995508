//! The delta protocol, as Envoy implements it.

use navarch_proto::envoy::config::core::v3::Node;
use prost::Message;

use crate::xds::follow::{Follower, Gone};
use crate::xds::grpc::Outbox;
use crate::xds::kind::Kind;
use crate::xds::names::Names;
use crate::xds::wire::{self, Response};

/// Field numbers of a `DeltaDiscoveryRequest`.
mod field {
    /// `node`.
    pub(super) const NODE: u8 = 1;
    /// `type_url`.
    pub(super) const TYPE_URL: u8 = 2;
    /// `resource_names_subscribe`.
    pub(super) const SUBSCRIBE: u8 = 3;
    /// `resource_names_unsubscribe`.
    pub(super) const UNSUBSCRIBE: u8 = 4;
    /// `initial_resource_versions`.
    pub(super) const VERSIONS: u8 = 5;
    /// `response_nonce`.
    pub(super) const NONCE: u8 = 6;
}

/// One stream.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    /// Whether it has subscribed to listeners.
    listens: bool,
    /// Whether it has subscribed to virtual hosts.
    takes_hosts: bool,
}

impl Delta {
    /// The first requests of a stream: clusters, and after a reconnect all types with their
    /// resources.
    pub(crate) fn open(
        &mut self,
        node: &Node,
        follower: &Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) {
        let is_back = follower.held(Kind::Clusters).next().is_some();
        self.listens = is_back;
        self.takes_hosts = is_back && follower.wants_hosts();
        let texts = names.texts();
        let mut ask = |kind: Kind, node: &[u8]| {
            outbox.message(|out| {
                wire::put(out, field::NODE, node);
                wire::put(out, field::TYPE_URL, kind.type_url().as_bytes());
                for name in follower.wanted(kind) {
                    wire::put_always(out, field::SUBSCRIBE, texts.name(kind, name));
                }
                for (name, version) in follower.held(kind) {
                    wire::put_entry(
                        out,
                        field::VERSIONS,
                        texts.name(kind, name),
                        texts.version(version),
                    );
                }
            });
        };

        ask(Kind::Clusters, &node.encode_to_vec());

        for kind in [
            Kind::Endpoints,
            Kind::Listeners,
            Kind::Routes,
            Kind::VirtualHosts,
        ] {
            let is_requested = match kind {
                Kind::Clusters => false,
                // Without names, the request would be a wildcard subscription.
                Kind::Endpoints | Kind::Routes => is_back && follower.wanted(kind).next().is_some(),
                Kind::Listeners => is_back,
                Kind::VirtualHosts => self.takes_hosts,
            };
            if is_requested {
                ask(kind, &[]);
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
        let turn = follower.take(
            names,
            kind,
            &response.resources,
            Gone::These(&response.removed),
        );

        outbox.message(|out| {
            wire::put(out, field::TYPE_URL, kind.type_url().as_bytes());
            wire::put(out, field::NONCE, response.nonce);
        });

        if let Some(kind) = turn.kind {
            let texts = names.texts();
            outbox.message(|out| {
                wire::put(out, field::TYPE_URL, kind.type_url().as_bytes());
                for (field, ids) in [
                    (field::SUBSCRIBE, turn.names.more),
                    (field::UNSUBSCRIBE, turn.names.less),
                ] {
                    ids.iter()
                        .for_each(|id| wire::put_always(out, field, texts.name(kind, *id)));
                }
            });
        }

        let mut ask = |kind: Kind| {
            outbox.message(|out| wire::put(out, field::TYPE_URL, kind.type_url().as_bytes()))
        };

        if !self.takes_hosts && follower.wants_hosts() {
            self.takes_hosts = true;
            ask(Kind::VirtualHosts);
        }

        if !self.listens && follower.wants_listeners() {
            self.listens = true;
            ask(Kind::Listeners);
        }

        turn.removed
    }
}
