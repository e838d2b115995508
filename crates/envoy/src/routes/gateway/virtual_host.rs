//! One virtual host of a gateway, as bytes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use navarch_proto::envoy::config::route::v3::VirtualHost;
use navarch_proto::envoy::config::route::v3::virtual_host::TlsRequirementType;
use prost::Message;
use prost_types::Any;

use super::super::settings::{RouteHeaders, RouteSettings};
use super::super::stateful_session;
use super::super::virtual_host::FIELD_NUMBER;
use super::super::wire_field;
use super::hosts::GatewayHost;
use super::sources::{RouteBytes, service_for};
use crate::virtual_service;
use navarch_api::names::Hostname;
use navarch_push::chunked_list::Chunk;
use navarch_push::query::Query;
use navarch_push::view::View;

/// A virtual host, encoded as an item of a route configuration: key and length of the field
/// `virtual_hosts`, then the message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostBytes {
    /// The source of its routes.
    pub(super) host: Arc<GatewayHost>,
}

/// The virtual hosts of a chunk, concatenated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkBytes {
    pub(super) chunk: Chunk<Arc<GatewayHost>>,
}

impl Query for ChunkBytes {
    type Value = Bytes;

    fn compute(&self, view: &View<'_>) -> Bytes {
        let hosts = self
            .chunk
            .items()
            .iter()
            .map(|host| view.get(&HostBytes { host: host.clone() }));
        let hosts: Vec<Arc<Bytes>> = hosts.collect();
        match hosts.as_slice() {
            [only] => Bytes::clone(only),
            hosts => {
                let mut bytes = BytesMut::with_capacity(hosts.iter().map(|host| host.len()).sum());
                hosts.iter().for_each(|host| bytes.extend_from_slice(host));
                bytes.freeze()
            }
        }
    }
}

impl Query for HostBytes {
    type Value = Bytes;

    fn compute(&self, view: &View<'_>) -> Bytes {
        let host = &self.host;
        let head = VirtualHost {
            name: host.name.clone(),
            domains: host.domains.clone(),
            ..VirtualHost::default()
        };
        let session = self
            .session(view)
            .map(|session| (stateful_session::FILTER.to_owned(), session));

        let requirement = if host.requires_tls {
            TlsRequirementType::All
        } else {
            TlsRequirementType::None
        };

        let tail = VirtualHost {
            require_tls: requirement.into(),
            include_request_attempt_count: view.derived(&RouteHeaders).attempt_count,
            typed_per_filter_config: session.into_iter().collect(),
            ..VirtualHost::default()
        };

        join(&head, &self.routes(view), &tail)
    }
}

impl HostBytes {
    /// Its routes. Those that match everything come last, wherever they were declared.
    fn routes(&self, view: &View<'_>) -> Vec<Bytes> {
        let mut routes = Vec::new();
        let mut last = Vec::new();
        for source in &self.host.sources {
            for route in view.get(&RouteBytes(source.clone())).iter() {
                let list = if route.is_catch_all {
                    &mut last
                } else {
                    &mut routes
                };
                list.push(route.bytes.clone());
            }
        }
        routes.append(&mut last);
        routes
    }

    /// The persistent session of the service with the host's own name, if the VirtualService has it
    /// as a destination.
    fn session(&self, view: &View<'_>) -> Option<Any> {
        let settings = view.get(&RouteSettings);
        let labels = settings.session_labels.as_ref()?;
        let owner = self.host.owner.as_ref()?;
        let host = Hostname::new(self.host.domains.first()?);
        let targets = virtual_service::destinations(view, owner).all();
        let service = targets
            .contains_key(&host)
            .then(|| service_for(view, &owner.namespace, &host))??;
        stateful_session::per_route(&service, Some(labels))
    }
}

/// A virtual host as an item of the field `virtual_hosts`: the fields before its routes, the
/// routes, the fields after them.
fn join(head: &VirtualHost, routes: &[Bytes], tail: &VirtualHost) -> Bytes {
    let length =
        head.encoded_len() + tail.encoded_len() + routes.iter().map(Bytes::len).sum::<usize>();
    let mut bytes = wire_field::begin(FIELD_NUMBER, length);
    head.encode_raw(&mut bytes);
    routes
        .iter()
        .for_each(|route| bytes.extend_from_slice(route));
    tail.encode_raw(&mut bytes);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::route::v3::Route;

    use super::super::super::virtual_host::as_field;
    use super::super::sources;
    use super::*;

    #[test]
    fn encoded_pieces_equal_the_encoded_message() {
        let route = |name: &str| Route {
            name: name.to_owned(),
            ..Route::default()
        };
        let head = VirtualHost {
            name: "a:80".to_owned(),
            domains: vec!["a".to_owned()],
            ..VirtualHost::default()
        };

        let tail = VirtualHost {
            require_tls: TlsRequirementType::All.into(),
            include_request_attempt_count: true,
            ..VirtualHost::default()
        };
        let whole = VirtualHost {
            routes: vec![route("one"), route("two")],
            ..head.clone()
        };
        let whole = VirtualHost {
            require_tls: tail.require_tls,
            include_request_attempt_count: true,
            ..whole
        };

        let routes = [
            sources::as_field(&route("one")),
            sources::as_field(&route("two")),
        ];
        assert_eq!(join(&head, &routes, &tail), as_field(&whole));
    }
}
