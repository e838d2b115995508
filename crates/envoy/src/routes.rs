//! RDS: route configurations of sidecars and gateways.
//!
//! ```text
//! services of the listener ─┐
//! VirtualServices ──────────┴▶ virtual host set ─▶ duplicate domains ─┐
//!                                └───────▶ virtual hosts ─────────────┴▶ bytes of each ──joined──▶ route configuration
//! ```
//!
//! A route configuration is concatenated from the bytes of its virtual hosts, each of which is a
//! query: after an edit of a VirtualService its own hosts are translated again and the others
//! copied. Agrees in meaning with Istio's `networking/core/httproute.go` and
//! `networking/core/route`.

mod action;
mod context;
mod cors;
mod default_route;
mod domains;
mod duplicate_domains;
mod fault;
mod fraction;
mod gateway;
mod groups;
mod grpc;
mod hash;
mod header_formats;
mod headers;
mod http_route;
mod inbound;
mod jwt_claim;
mod large;
mod matchers;
mod mirror;
mod on_demand;
mod patched;
mod port_services;
mod redirect;
mod regex_size;
mod retry;
mod rewrite;
mod settings;
mod sidecar;
mod stateful_session;
mod text_match;
mod vhds;
mod virtual_host;
mod virtual_host_set;
mod wire_field;

use bytes::Bytes;
pub use context::{RouteClient, RouteContext, destination_cluster};
pub(super) use grpc::for_grpc;
pub use http_route::http_routes;
pub use inbound::{InboundRoute, inbound};
pub(super) use large::are_large;
use navarch_proto::envoy::config::route::v3::VirtualHost;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
pub(super) use sidecar::http_proxy_port;
pub use vhds::with_hosts;

use crate::filters::http::filter;
use crate::sidecar_scope;
use navarch_api::names::{Hostname, ResourceName};
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;
use navarch_registry::model::Service;

/// The virtual host for unknown hosts, by the outbound traffic policy of the Sidecar or the mesh.
#[must_use]
pub fn unknown_hosts(view: &View<'_>) -> VirtualHost {
    default_route::catch_all(
        &sidecar_scope::outbound_policy(view),
        *view.derived(&settings::RouteHeaders),
    )
}

/// The filter for persistent sessions of a service, if it has such sessions.
pub(super) fn session_filter(view: &View<'_>, service: &Service) -> Option<HttpFilter> {
    let settings = view.get(&settings::RouteSettings);
    let session = stateful_session::of_service(service, settings.session_labels.as_ref())?;
    Some(filter(stateful_session::FILTER, &session))
}

/// The other names of a host for clients of the proxy's DNS domain.
#[must_use]
pub fn other_names(view: &View<'_>, host: &Hostname) -> Vec<String> {
    let all = domains::derived(view, host.as_str(), domains::PortForm::Bare).into_iter();
    all.filter(|domain| domain.is_known(view))
        .map(|domain| domain.text)
        .collect()
}

pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let name = name.as_str();
    match view.proxy().kind() {
        ProxyKind::Sidecar | ProxyKind::Router if vhds::is_enabled(view) => {
            Some(vhds::configuration(view, name))
        }
        ProxyKind::Sidecar | ProxyKind::Waypoint => Some(patched::sidecar(view, name)),
        ProxyKind::Router => Some(patched::gateway(view, name)),
        ProxyKind::Ztunnel | ProxyKind::AgentGateway => None,
    }
}

/// The names of the virtual hosts of a route configuration that uses on-demand virtual hosts
/// (VHDS).
pub(super) fn host_names(of: &ResourceName, view: &View<'_>) -> Vec<ResourceName> {
    if vhds::is_enabled(view) {
        vhds::names(view, of.as_str())
    } else {
        Vec::new()
    }
}

/// The virtual host of this name, `<route configuration>/<virtual host>`, for proxies with
/// on-demand virtual hosts.
pub(super) fn host(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let (routes, host) = name.as_str().rsplit_once('/')?;
    if vhds::is_enabled(view) {
        vhds::host(view, routes, host)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
