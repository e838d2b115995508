//! The listener that terminates tunnels, of waypoints and sidecars (`hbone` has the drawing).

use navarch_proto::envoy::config::core::v3::{Http2ProtocolOptions, KeepaliveSettings};
use navarch_proto::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use navarch_proto::envoy::config::listener::v3::listener::connection_balance_config::{BalanceType, ExactBalance};
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::config::route::v3::route_action::upgrade_config::ConnectConfig;
use navarch_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, UpgradeConfig as RouteUpgrade};
use navarch_proto::envoy::config::route::v3::route_match::{ConnectMatcher, PathSpecifier};
use navarch_proto::envoy::config::route::v3::{Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    RouteSpecifier, SetCurrentClientCertDetails, UpgradeConfig,
};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;

use super::address::{additional_addresses, listen_address, wildcards};
use crate::authorization::AuthorizationOfTunnels;
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::http;
use crate::filters::network::http_filter;
use crate::filters::proxy_headers::{HeaderSettingsOf, forward_client_cert};
use crate::filters::tunnel;
use crate::hbone::{MAIN, PORT, TERMINATE, joins_networks};
use crate::tunnel_sockets as sockets;
use navarch_push::view::View;

const CLASS: ListenerClass = ListenerClass::SidecarInbound;
/// The upgrade type of tunnels.
const CONNECT: &str = "CONNECT";
/// Maximum number of concurrent streams per connection: all of them are handled by one worker
/// thread.
const MAX_STREAMS: u32 = 100;
/// Keepalive interval and timeout of HTTP/2 pings, in seconds, as in ztunnel.
const KEEPALIVE: (i64, i64) = (10, 20);

/// The listener that terminates tunnels and forwards the inner connections.
pub(super) fn build(view: &View<'_>) -> Listener {
    let binds = wildcards(view.proxy().families());
    let tls = DownstreamTlsContext {
        common_tls_context: Some(sockets::common_tls(view, None)),
        require_client_certificate: Some(true),
        ..DownstreamTlsContext::default()
    };

    let chain = FilterChain {
        name: "default".to_owned(),
        transport_socket: Some(sockets::server_tls(&tls)),
        filters: vec![http_filter(&manager(view))],
        ..FilterChain::default()
    };

    Listener {
        name: TERMINATE.to_owned(),
        address: binds.first().map(|bind| listen_address(bind, PORT)),
        additional_addresses: additional_addresses(
            binds
                .get(1..)
                .expect("`wildcards` returns at least one address"),
            PORT,
        ),
        filter_chains: vec![chain],
        // A few connections carry many streams, and must be spread over worker threads.
        connection_balance_config: Some(ConnectionBalanceConfig {
            balance_type: Some(BalanceType::ExactBalance(ExactBalance {})),
        }),
        access_log: view.get(&AccessLogsOf::of_class(CLASS)).listener.clone(),
        ..Listener::default()
    }
}

/// Accepts CONNECT requests.
fn manager(view: &View<'_>) -> HttpConnectionManager {
    let headers = view.derived(&HeaderSettingsOf { class: CLASS });
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let (interval, timeout) = KEEPALIVE;
    let mut http_filters = if view.mesh().settings.hbone.layered_authorization {
        (*view.get(&AuthorizationOfTunnels)).clone()
    } else {
        Vec::new()
    };

    http_filters.extend(tunnel::downstream_metadata(view));
    http_filters.push(tunnel::connect_authority(view));
    http_filters.extend(joins_networks(view).then(|| tunnel::request_source(view)));
    http_filters.push(http::router(headers.suppress_debug_headers));

    HttpConnectionManager {
        stat_prefix: TERMINATE.to_owned(),
        route_specifier: Some(RouteSpecifier::RouteConfig(routes())),
        forward_client_cert_details: forward_client_cert(headers.forwarded_client_cert).into(),
        set_current_client_cert_details: Some(SetCurrentClientCertDetails {
            subject: Some(true),
            uri: true,
            dns: true,
            ..SetCurrentClientCertDetails::default()
        }),
        server_name: headers.server_name.clone(),
        server_header_transformation: headers.server_transformation().into(),
        generate_request_id: (!headers.generate_request_id).then_some(false),
        use_remote_address: Some(false),
        access_log: view.get(&AccessLogsOf::of_class(CLASS)).tunnel_end.clone(),
        stream_idle_timeout: Some(prost_types::Duration::default()),
        upgrade_configs: vec![UpgradeConfig {
            upgrade_type: CONNECT.to_owned(),
            ..UpgradeConfig::default()
        }],
        http2_protocol_options: Some(Http2ProtocolOptions {
            allow_connect: true,
            max_concurrent_streams: Some(MAX_STREAMS),
            connection_keepalive: Some(KeepaliveSettings {
                interval: seconds(interval),
                timeout: seconds(timeout),
                ..KeepaliveSettings::default()
            }),
            ..Http2ProtocolOptions::default()
        }),
        http_filters,
        ..HttpConnectionManager::default()
    }
}

/// Routes all requests to [`MAIN`].
fn routes() -> RouteConfiguration {
    let upgrade = RouteUpgrade {
        upgrade_type: CONNECT.to_owned(),
        connect_config: Some(ConnectConfig::default()),
        ..RouteUpgrade::default()
    };

    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(MAIN.to_owned())),
        upgrade_configs: vec![upgrade],
        ..RouteAction::default()
    };

    let route = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::ConnectMatcher(ConnectMatcher {})),
            ..RouteMatch::default()
        }),
        action: Some(route::Action::Route(action)),
        ..Route::default()
    };

    let host = VirtualHost {
        name: "default".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![route],
        ..VirtualHost::default()
    };

    RouteConfiguration {
        name: "default".to_owned(),
        virtual_hosts: vec![host],
        ..RouteConfiguration::default()
    }
}
