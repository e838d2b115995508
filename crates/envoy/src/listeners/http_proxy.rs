//! An HTTP proxy on each sidecar, for applications that are configured to use one
//! (`proxyHttpPort`).

use navarch_proto::envoy::config::listener::v3::Listener;

use super::address::{listener_name, localhosts};
use super::filter_chain::Chain;
use super::outbound;
use super::outbound_plan::PlannedListener;
use crate::connection_manager::{HttpOptions, Routes, connection_manager};
use crate::filters::class::ListenerClass;
use crate::filters::network::http_filter;
use crate::routes::http_proxy_port;
use crate::sidecar_scope::{self, OutboundPolicy};
use crate::traffic_extension;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The name of its route configuration.
const ROUTES: &str = "http_proxy";

/// Its name, if enabled.
pub(super) fn name(view: &View<'_>) -> Option<String> {
    let bind = localhosts(view.proxy().families()).first()?;
    http_proxy_port(view).map(|port| listener_name(bind, port))
}

pub(super) fn build(view: &View<'_>, name: &str) -> Option<Listener> {
    let binds = localhosts(view.proxy().families())
        .iter()
        .map(|&bind| bind.to_owned())
        .collect();
    let port = http_proxy_port(view)?;
    let planned = PlannedListener {
        binds,
        binds_to_port: true,
        port,
        groups: Vec::new(),
    };

    let mut manager = connection_manager(
        view,
        HttpOptions {
            stat_prefix: &format!("outbound_{name}"),
            port,
            resolves_unknown_hosts: sidecar_scope::outbound_policy(view)
                == OutboundPolicy::AllowAnyDynamicDns,
            ..HttpOptions::new(
                ListenerClass::SidecarOutbound,
                Routes::Rds(ROUTES.to_owned()),
                Protocol::HttpProxy,
            )
        },
    );

    manager
        .http_protocol_options
        .get_or_insert_default()
        .allow_absolute_url = Some(true);
    let extensions = traffic_extension::network_filters(view, ListenerClass::SidecarOutbound, port);
    let filters = extensions
        .in_order()
        .chain([http_filter(&manager)])
        .collect();

    let chain = Chain {
        filters,
        ..Chain::default()
    };
    Some(outbound::http_listener(view, name, &planned, chain))
}
