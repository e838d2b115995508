//! Listeners of servers: TLS by PeerAuthentications, and AuthorizationPolicies.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::{TransportSocket, transport_socket};
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::config::route::v3::{
    NonForwardingAction, Route, RouteConfiguration, RouteMatch, VirtualHost, route, route_match,
};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;

use super::{host_port, tls};
use crate::build::socket_address;
use crate::filters::http;
use crate::filters::network::network_filter;
use crate::listeners::address::additional_addresses;
use crate::mtls::{self, MtlsMode};
use crate::{authorization, service_address};
use navarch_push::view::View;

/// The label of workloads that accept mutual TLS.
const TLS_MODE: &str = "security.istio.io/tlsMode";

/// The listener of this name, for a server on `address`; `None` if no service has the port of the
/// workload.
pub(super) fn build(view: &View<'_>, name: &str, address: &str) -> Option<Listener> {
    let (host, port) = host_port::split(address)?;
    let port: u16 = port.parse().ok()?;
    let targets = view.proxy().targets();
    let target = targets.iter().rfind(|target| target.target_port == port)?;
    Some(Listener {
        name: name.to_owned(),
        address: Some(socket_address(host, u32::from(port))),
        additional_addresses: additional_addresses(
            &service_address::extra(view, &target.service),
            port,
        ),
        filter_chains: vec![chain(view, requires_mtls(view, port))],
        ..Listener::default()
    })
}

/// Whether a port accepts only mutual TLS. A gRPC server accepts either it or plain text, never
/// both: if policies permit both, it is mutual TLS if the workload's label announces it to clients.
fn requires_mtls(view: &View<'_>, port: u16) -> bool {
    match mtls::of_proxy(view).on_port(port) {
        MtlsMode::Disable => false,
        MtlsMode::Permissive => view
            .proxy()
            .labels()
            .get(TLS_MODE)
            .is_some_and(|mode| &**mode == "istio"),
        MtlsMode::Strict => true,
    }
}

/// The only filter chain.
fn chain(view: &View<'_>, mtls: bool) -> FilterChain {
    let transport = if mtls { "mtls" } else { "plaintext" };
    let mut filters = authorization::grpc_filters(view);
    filters.push(http::router(false));
    let manager = HttpConnectionManager {
        http_filters: filters,
        route_specifier: Some(RouteSpecifier::RouteConfig(everything())),
        ..HttpConnectionManager::default()
    };

    FilterChain {
        name: format!("inbound-{transport}"),
        filters: vec![network_filter(&format!("inbound-hcm{transport}"), &manager)],
        transport_socket: mtls.then(|| TransportSocket {
            name: tls::SOCKET.to_owned(),
            config_type: Some(transport_socket::ConfigType::TypedConfig(pack(
                &DownstreamTlsContext {
                    common_tls_context: Some(tls::context(&[])),
                    require_client_certificate: Some(true),
                    ..DownstreamTlsContext::default()
                },
            ))),
        }),
        ..FilterChain::default()
    }
}

/// Forwards every request to the application.
fn everything() -> RouteConfiguration {
    let route = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())),
            ..RouteMatch::default()
        }),
        action: Some(route::Action::NonForwardingAction(NonForwardingAction {})),
        ..Route::default()
    };

    let host = VirtualHost {
        domains: vec!["*".to_owned()],
        routes: vec![route],
        ..VirtualHost::default()
    };

    RouteConfiguration {
        name: "inbound".to_owned(),
        virtual_hosts: vec![host],
        ..RouteConfiguration::default()
    }
}
