//! The delta protocol, as Envoy implements it.

use navarch_proto::envoy::config::core::v3::Node;
use prost::Message;

use crate::xds::follow::{Follower, Gone};
use crate::xds::grpc::Outbox;
use crate::xds::names::Names;
use crate::xds::resource_type::ResourceType;
use crate::xds::wire::{self, Response};

/// Field numbers of a `DeltaDiscoveryRequest`.
pub(crate) mod field {
    /// `node`.
    pub(crate) const NODE: u8 = 1;
    /// `type_url`.
    pub(crate) const TYPE_URL: u8 = 2;
    /// `resource_names_subscribe`.
    pub(crate) const SUBSCRIBE: u8 = 3;
    /// `resource_names_unsubscribe`.
    pub(crate) const UNSUBSCRIBE: u8 = 4;
    /// `initial_resource_versions`.
    pub(crate) const VERSIONS: u8 = 5;
    /// `response_nonce`.
    pub(crate) const NONCE: u8 = 6;
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
        let is_back = follower.held(ResourceType::Clusters).next().is_some();
        self.listens = is_back;
        self.takes_hosts = is_back && follower.wants_hosts();
        let texts = names.texts();
        let mut ask = |resource_type: ResourceType, node: &[u8]| {
            outbox.message(|out| {
                wire::put(out, field::NODE, node);
                wire::put(out, field::TYPE_URL, resource_type.type_url().as_bytes());
                for name in follower.wanted(resource_type) {
                    wire::put_always(out, field::SUBSCRIBE, texts.name(resource_type, name));
                }
                for (name, version) in follower.held(resource_type) {
                    wire::put_entry(
                        out,
                        field::VERSIONS,
                        texts.name(resource_type, name),
                        texts.version(version),
                    );
                }
            });
        };

        ask(ResourceType::Clusters, &node.encode_to_vec());

        for resource_type in [
            ResourceType::Endpoints,
            ResourceType::Listeners,
            ResourceType::Routes,
            ResourceType::VirtualHosts,
        ] {
            let is_requested = match resource_type {
                ResourceType::Clusters => false,
                // Without names, the request would be a wildcard subscription.
                ResourceType::Endpoints | ResourceType::Routes => {
                    is_back && follower.wanted(resource_type).next().is_some()
                }
                ResourceType::Listeners => is_back,
                ResourceType::VirtualHosts => self.takes_hosts,
            };
            if is_requested {
                ask(resource_type, &[]);
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
        let turn = follower.take(
            names,
            resource_type,
            &response.resources,
            Gone::These(&response.removed),
        );

        outbox.message(|out| {
            wire::put(out, field::TYPE_URL, resource_type.type_url().as_bytes());
            wire::put(out, field::NONCE, response.nonce);
        });

        if let Some(resource_type) = turn.resource_type {
            let texts = names.texts();
            outbox.message(|out| {
                wire::put(out, field::TYPE_URL, resource_type.type_url().as_bytes());
                for (field, ids) in [
                    (field::SUBSCRIBE, turn.names.more),
                    (field::UNSUBSCRIBE, turn.names.less),
                ] {
                    ids.iter().for_each(|id| {
                        wire::put_always(out, field, texts.name(resource_type, *id))
                    });
                }
            });
        }

        let mut ask = |resource_type: ResourceType| {
            outbox
                .message(|out| wire::put(out, field::TYPE_URL, resource_type.type_url().as_bytes()))
        };

        if !self.takes_hosts && follower.wants_hosts() {
            self.takes_hosts = true;
            ask(ResourceType::VirtualHosts);
        }

        if !self.listens && follower.wants_listeners() {
            self.listens = true;
            ask(ResourceType::Listeners);
        }

        turn.removed
    }
}
