//! The routes of one VirtualService on one server, as bytes.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::super::context::{RouteClient, RouteContext};
use super::super::http_route::http_routes;
use super::super::matchers::is_catch_all;
use super::super::wire_field;
use crate::export_to::resolve_export_to;
use crate::sidecar_scope;
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::NamespacedName;
use navarch_push::chunked_list::Chunk;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{ExportTo, Service, ServiceKey};

/// A VirtualService on a server of a gateway; as a query, whether it has any routes there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteSource {
    pub(super) virtual_service: NamespacedName,
    /// The gateway, as `namespace/name`.
    pub(super) gateway: Arc<str>,
    /// The declared port of the server.
    pub(super) port: u16,
    /// Whether the server has TLS settings.
    pub(super) is_tls: bool,
    /// Whether the server advertises HTTP/3.
    pub(super) advertises_http3: bool,
}

/// Those of some VirtualServices with any routes on a server of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Routed {
    pub(super) chunk: Chunk<NamespacedName>,
    /// The server; its VirtualService is not set.
    pub(super) on: RouteSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteBytes(pub(super) RouteSource);

/// One route, encoded as an item of a virtual host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EncodedRoute {
    /// Key and length of the field `routes`, then the message.
    pub(super) bytes: Bytes,
    /// Whether it matches everything.
    pub(super) is_catch_all: bool,
}

/// The number of the field `routes` of a virtual host.
const FIELD_NUMBER: u32 = 3;

impl Query for RouteBytes {
    type Value = Vec<EncodedRoute>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let source = &self.0;
        let namespace = &source.virtual_service.namespace;
        let context = RouteContext {
            view,
            listen_port: source.port,
            gateways: &[source.gateway.to_string()].into(),
            client: RouteClient::Envoy,
            is_tls: source.is_tls,
            advertises_http3: source.advertises_http3,
            service: &|host| service_for(view, namespace, host),
        };
        let routes = http_routes(&context, &source.virtual_service);
        let encoded = routes.iter().map(|route| EncodedRoute {
            bytes: as_field(route),
            is_catch_all: route.r#match.as_ref().is_some_and(is_catch_all),
        });
        encoded.collect()
    }
}

impl Query for RouteSource {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        !view.get(&RouteBytes(self.clone())).is_empty()
    }
}

impl Query for Routed {
    type Value = Vec<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let source = |name: &NamespacedName| RouteSource {
            virtual_service: name.clone(),
            ..self.on.clone()
        };
        self.chunk
            .items()
            .iter()
            .filter(|name| *view.get(&source(name)))
            .cloned()
            .collect()
    }
}

/// A route as an item of the field `routes`.
pub(super) fn as_field(route: &impl Message) -> Bytes {
    let mut bytes = wire_field::begin(FIELD_NUMBER, route.encoded_len());
    route.encode_raw(&mut bytes);
    bytes.freeze()
}

/// The service of a host for a VirtualService on a gateway: that of the VirtualService's namespace,
/// if the gateway sees it; else the one that the gateway uses for the host.
pub(super) fn service_for(
    view: &View<'_>,
    namespace: &Namespace,
    host: &Hostname,
) -> Option<Arc<Service>> {
    let key = ServiceKey {
        namespace: namespace.clone(),
        hostname: host.clone(),
    };
    let own = view.service(&key).filter(|service| sees(view, service));
    own.cloned()
        .or_else(|| sidecar_scope::host_service(view, host))
}

/// Whether the proxy's namespace sees a service.
fn sees(view: &View<'_>, service: &Service) -> bool {
    let default = &view.mesh().config.default_service_export_to;
    match resolve_export_to(&service.export_to, default, &service.key.namespace) {
        ExportTo::Unset | ExportTo::Public => true,
        ExportTo::Nobody => false,
        ExportTo::Namespaces(named) => view.proxy().namespace_among(named).is_some(),
    }
}
