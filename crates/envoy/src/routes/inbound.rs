//! The routes of inbound listeners, which are inline in the listener.

use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use super::default_route;
use super::domains::with_port;
use super::patched;
use super::settings::RouteSettings;
use navarch_api::istio::ConsistentHashLb;
use navarch_api::names::Hostname;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The target of an inbound route.
#[derive(Clone, Debug, PartialEq)]
pub struct InboundRoute<'a> {
    /// The cluster of the application's port.
    pub cluster: &'a str,
    /// The host in span names; empty if only a Sidecar declares the port.
    pub host: &'a Hostname,
    /// The service port.
    pub port: u16,
    /// The protocol of the port.
    pub protocol: Protocol,
    /// Set for a waypoint, which is a client of its services: the consistent hash settings of the
    /// service, if any.
    pub waypoint: Option<Option<ConsistentHashLb>>,
    /// The only host that requests may have; `None` means any.
    pub domain: Option<String>,
}

/// Maximum size in bytes of a direct response.
const MAX_DIRECT_RESPONSE: u32 = 1_048_576;

/// The route configuration of an inbound filter chain: all requests are for the application.
#[must_use]
pub fn inbound(view: &View<'_>, to: &InboundRoute<'_>) -> RouteConfiguration {
    let operation = format!("{}/*", with_port(to.host.as_str(), to.port));
    let settings = view.get(&RouteSettings);
    let route = match &to.waypoint {
        Some(hash) => {
            default_route::outbound(to.cluster.to_owned(), operation, hash.as_ref(), &settings)
        }
        None => default_route::inbound(to.cluster.to_owned(), operation, to.protocol, &settings),
    };

    let host = VirtualHost {
        name: format!("inbound|http|{}", to.port),
        domains: vec![to.domain.clone().unwrap_or_else(|| "*".to_owned())],
        routes: vec![route],
        ..VirtualHost::default()
    };

    let mut routes = RouteConfiguration {
        name: to.cluster.to_owned(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        max_direct_response_body_size_bytes: to.waypoint.is_some().then_some(MAX_DIRECT_RESPONSE),
        ..RouteConfiguration::default()
    };

    patched::inbound(view, &mut routes);
    routes
}
