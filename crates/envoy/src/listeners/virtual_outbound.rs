//! The listener that iptables redirects all outbound connections to. It passes connections to the
//! listener of their original destination, and handles those without one.

use navarch_proto::envoy::config::core::v3::TrafficDirection;
use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch, Listener};
use navarch_proto::envoy::config::route::v3::RouteConfiguration;

use super::address::{
    Interception, accepts_per_event, additional_addresses, interception, listen_address, wildcards,
};
use super::inspectors::plaintext_http;
use crate::connection_manager::{HttpOptions, Routes, connection_manager};
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::listener::http_inspector;
use crate::filters::metrics::MetricsFiltersOf;
use crate::filters::network::{http_filter, tcp_filter, tcp_proxy};
use crate::names::{BLACK_HOLE, PASSTHROUGH};
use crate::proxy_settings::idle_timeout;
use crate::routes;
use crate::sidecar_scope::{self, OutboundPolicy};
use navarch_push::proxy::IpFamilies;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

pub(super) const NAME: &str = "virtualOutbound";

/// The class of these listeners.
const CLASS: ListenerClass = ListenerClass::SidecarOutbound;

pub(super) fn build(view: &View<'_>) -> Listener {
    let families = view.proxy().families();
    let port = listen_port(view);
    let binds = wildcards(families);
    let settings = &view.mesh().settings;
    let further: &[&str] = match families {
        IpFamilies::DualV4First | IpFamilies::DualV6First if settings.dual_stack => binds
            .get(1..)
            .expect("`wildcards` returns at least one address"),
        IpFamilies::V6 if settings.ipv4_for_ipv6_only => wildcards(IpFamilies::V4),
        IpFamilies::V4 | IpFamilies::V6 | IpFamilies::DualV4First | IpFamilies::DualV6First => &[],
    };

    let by_name = sidecar_scope::outbound_policy(view) == OutboundPolicy::AllowAnyDynamicDns;
    let mut filter_chains = vec![blackhole_chain(view, port)];
    if by_name {
        filter_chains.push(by_name_chain(view));
    }

    filter_chains.push(FilterChain {
        name: "virtualOutbound-catchall-tcp".to_owned(),
        filters: catch_all_filters(view),
        ..FilterChain::default()
    });

    Listener {
        name: NAME.to_owned(),
        address: binds.first().map(|bind| listen_address(bind, port)),
        additional_addresses: additional_addresses(further, port),
        transparent: (interception(view) == Interception::Tproxy).then_some(true),
        use_original_dst: Some(true),
        filter_chains,
        listener_filters: if by_name {
            vec![http_inspector()]
        } else {
            Vec::new()
        },
        traffic_direction: TrafficDirection::Outbound.into(),
        max_connections_to_accept_per_socket_event: accepts_per_event(view),
        access_log: view.get(&AccessLogsOf::of_class(CLASS)).listener.clone(),
        ..Listener::default()
    }
}

/// The chain for unknown destinations, by the outbound traffic policy of the Sidecar or the mesh.
pub(super) fn catch_all_filters(view: &View<'_>) -> Vec<Filter> {
    let cluster = match sidecar_scope::outbound_policy(view) {
        OutboundPolicy::RegistryOnly => BLACK_HOLE.to_owned(),
        OutboundPolicy::AllowAny {
            egress_proxy: Some(destination),
        } => routes::destination_cluster(&destination, None, 0),
        OutboundPolicy::AllowAny { egress_proxy: None } | OutboundPolicy::AllowAnyDynamicDns => {
            PASSTHROUGH.to_owned()
        }
    };

    let mut proxy = tcp_proxy(&cluster, &cluster);
    proxy.idle_timeout = idle_timeout(view);
    view.get(&AccessLogsOf::of_class(CLASS)).put(&mut proxy);
    let mut filters = view.get(&MetricsFiltersOf::of_class(CLASS)).tcp.clone();

    filters.push(tcp_filter(&proxy));
    filters
}

/// Drops connections to the listener's own port, which would loop forever.
fn blackhole_chain(view: &View<'_>, port: u16) -> FilterChain {
    let mut filters = view.get(&MetricsFiltersOf::of_class(CLASS)).tcp.clone();
    filters.push(tcp_filter(&tcp_proxy(BLACK_HOLE, BLACK_HOLE)));
    FilterChain {
        name: "virtualOutbound-blackhole".to_owned(),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: Some(u32::from(port)),
            ..FilterChainMatch::default()
        }),
        filters,
        ..FilterChain::default()
    }
}

/// The chain for plain HTTP to hosts that no service declares, which uses DNS
/// (`ALLOW_ANY_DYNAMIC_DNS`).
fn by_name_chain(view: &View<'_>) -> FilterChain {
    let routes = RouteConfiguration {
        name: "allow_any_dynamic_dns".to_owned(),
        virtual_hosts: vec![routes::unknown_hosts(view)],
        validate_clusters: Some(false),
        max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE),
        ignore_port_in_host_matching: true,
        ..RouteConfiguration::default()
    };

    let manager = connection_manager(
        view,
        HttpOptions {
            stat_prefix: "outbound_virtualOutbound_allow_any_dynamic_dns",
            use_remote_address: view.mesh().settings.sidecar_use_remote_address,
            may_skip_external_metadata: true,
            resolves_unknown_hosts: true,
            ..HttpOptions::new(CLASS, Routes::Inline(Box::new(routes)), Protocol::Http)
        },
    );

    FilterChain {
        name: "virtualOutbound-catchall-tcp-http".to_owned(),
        filter_chain_match: Some(FilterChainMatch {
            application_protocols: plaintext_http(view),
            ..FilterChainMatch::default()
        }),
        filters: vec![http_filter(&manager)],
        ..FilterChain::default()
    }
}

/// Maximum body size of direct responses, as in Istio: 1 MiB.
const MAX_DIRECT_RESPONSE: u32 = 1024 * 1024;

/// The port that iptables redirects to.
fn listen_port(view: &View<'_>) -> u16 {
    u16::try_from(view.mesh().config.proxy_listen_port).unwrap_or_default()
}
