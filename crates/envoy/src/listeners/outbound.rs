//! One outbound listener of a sidecar, built from its entry in the plan.

use navarch_proto::envoy::config::core::v3::TrafficDirection;
use navarch_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

use super::address::{accepts_per_event, additional_addresses, balance, listen_address};
use super::filter_chain::{Chain, Merged, RAW_BUFFER};
use super::inspectors::plaintext_http;
use super::l4_chains;
use super::outbound_plan::{ChainPlan, HttpChainPlan, PlannedListener};
use super::virtual_outbound::catch_all_filters;
use crate::connection_manager::{HttpOptions, Routes, connection_manager};
use crate::filters::class::ListenerClass;
use crate::filters::listener::{http_inspector, tls_inspector};
use crate::filters::network::http_filter;
use crate::sidecar_scope::{self, OutboundPolicy};
use crate::traffic_extension;
use navarch_push::view::View;

/// The name of the chain for connections without another match.
const PASSTHROUGH_CHAIN: &str = "PassthroughFilterChain";

/// Builds an outbound listener.
pub(super) fn build(view: &View<'_>, name: &str, planned: &PlannedListener) -> Listener {
    let mut built = planned.groups.iter().map(|group| {
        group
            .iter()
            .flat_map(|part| chains_of(view, name, planned.port, part))
            .collect::<Vec<Chain>>()
    });
    let mut chains = Merged::new(built.next().unwrap_or_default());
    for built in built {
        if chains.add(built) {
            view.count(
                "pilot_conflict_outbound_listener_tcp_over_current_tcp",
                name,
            );
        }
    }
    listener(view, name, planned, chains.into_chains())
}

/// An HTTP-only listener.
pub(super) fn http_listener(
    view: &View<'_>,
    name: &str,
    planned: &PlannedListener,
    chain: Chain,
) -> Listener {
    Listener {
        default_filter_chain: None,
        ..listener(view, name, planned, vec![chain])
    }
}

/// The chains of a plan entry.
fn chains_of(view: &View<'_>, name: &str, port: u16, part: &ChainPlan) -> Vec<Chain> {
    match part {
        ChainPlan::Tcp(tcp) => l4_chains::of_service(view, tcp),
        ChainPlan::Http(http) => vec![http_chain(view, name, port, http)],
    }
}

/// An HTTP chain with routes by RDS.
fn http_chain(view: &View<'_>, name: &str, port: u16, part: &HttpChainPlan) -> Chain {
    let service = part
        .resolved_by_name
        .as_ref()
        .and_then(|(egress, service)| sidecar_scope::listener_service(view, *egress, service));
    let manager = connection_manager(
        view,
        HttpOptions {
            stat_prefix: &format!("outbound_{name}"),
            use_remote_address: view.mesh().settings.sidecar_use_remote_address,
            may_skip_external_metadata: true,
            port,
            service: service.as_deref(),
            resolves_unknown_hosts: sidecar_scope::outbound_policy(view)
                == OutboundPolicy::AllowAnyDynamicDns,
            ..HttpOptions::new(
                ListenerClass::SidecarOutbound,
                Routes::Rds(part.routes.clone()),
                part.protocol,
            )
        },
    );

    let extensions = traffic_extension::network_filters(view, ListenerClass::SidecarOutbound, port);
    let filters = extensions
        .in_order()
        .chain([http_filter(&manager)])
        .collect();
    let mut chain = Chain {
        filters,
        ..Chain::default()
    };

    if part.sniffs {
        chain.application_protocols = plaintext_http(view);
        chain.transport_protocol = RAW_BUFFER;
    }

    chain
}

/// The listener with these chains.
fn listener(
    view: &View<'_>,
    name: &str,
    planned: &PlannedListener,
    chains: Vec<Chain>,
) -> Listener {
    let mut built = Listener {
        name: name.to_owned(),
        address: planned
            .binds
            .first()
            .map(|bind| listen_address(bind, planned.port)),
        additional_addresses: additional_addresses(
            planned.binds.get(1..).unwrap_or_default(),
            planned.port,
        ),
        traffic_direction: TrafficDirection::Outbound.into(),
        continue_on_listener_filters_timeout: true,
        connection_balance_config: balance(view, "OUTBOUND_LISTENER_EXACT_BALANCE"),
        ..Listener::default()
    };

    if planned.binds_to_port {
        built.max_connections_to_accept_per_socket_event = accepts_per_event(view);
    } else {
        built.bind_to_port = Some(false);
    }

    if chains.iter().any(needs_sni) {
        built.listener_filters.push(tls_inspector());
    }

    if chains
        .iter()
        .any(|chain| !chain.application_protocols.is_empty())
    {
        built.listener_filters.push(http_inspector());
        built.listener_filters_timeout = view
            .mesh()
            .config
            .protocol_detection_timeout
            .map(navarch_api::duration::Duration::to_proto);
    } else {
        built.listener_filters_timeout = Some(prost_types::Duration::default());
    }

    for chain in chains {
        let is_default = chain.matches_all();
        let chain = filter_chain(view, chain);
        if is_default {
            built.default_filter_chain = Some(chain);
        } else {
            built.filter_chains.push(chain);
        }
    }

    match built.default_filter_chain.take() {
        // If the default chain is the only one, it becomes a normal one.
        Some(default) if built.filter_chains.is_empty() => built.filter_chains.push(default),
        Some(default) => built.default_filter_chain = Some(default),
        None => built.default_filter_chain = Some(passthrough_chain(view)),
    }

    built
}

/// Whether the SNI must be read for selecting a chain, or within it.
fn needs_sni(chain: &Chain) -> bool {
    let resolves =
        |name: &str| name == "envoy.extensions.filters.network.sni_dynamic_forward_proxy";
    !chain.sni.is_empty() || chain.filters.iter().any(|filter| resolves(&filter.name))
}

/// The Envoy message of a chain.
fn filter_chain(view: &View<'_>, chain: Chain) -> FilterChain {
    FilterChain {
        filter_chain_match: chain.to_match(),
        filters: chain.filters,
        metadata: chain.metadata,
        transport_socket_connect_timeout: socket_connect_timeout(view),
        ..FilterChain::default()
    }
}

/// Timeout of a TLS handshake; `None` means no limit.
pub(super) fn socket_connect_timeout(view: &View<'_>) -> Option<prost_types::Duration> {
    let timeout = view.mesh().settings.transport_socket_connect_timeout;
    (!timeout.is_zero()).then(|| timeout.to_proto())
}

/// The chain for connections without another match: as if the listener did not exist.
fn passthrough_chain(view: &View<'_>) -> FilterChain {
    FilterChain {
        name: PASSTHROUGH_CHAIN.to_owned(),
        filter_chain_match: Some(FilterChainMatch::default()),
        filters: catch_all_filters(view),
        ..FilterChain::default()
    }
}
