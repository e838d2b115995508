//! The filters of an HTTP chain.

use navarch_proto::envoy::config::listener::v3::Filter;

use super::{CLASS, Subject, routes};
use crate::authorization::Peers;
use crate::connection_manager::{HttpOptions, Routes, connection_manager};
use crate::filters::network::http_filter;
use crate::listeners::address::listener_name;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The address in stat prefixes of chains.
const BIND: &str = "0.0.0.0";

/// The filters of the chain that forwards to `cluster` unless a route matches.
pub(super) fn filters(view: &View<'_>, subject: Subject<'_>, cluster: &str) -> Vec<Filter> {
    let (service, port, protocol) = match subject {
        Subject::Port(service, port) => (Some(service), port.port, port.protocol),
        Subject::Workloads => (None, 0, Protocol::Tcp),
    };
    let stat_prefix = format!("inbound_{}", listener_name(BIND, port));
    let routes = Routes::Inline(Box::new(routes::configuration(view, subject, cluster)));
    let mut manager = connection_manager(
        view,
        HttpOptions {
            stat_prefix: &stat_prefix,
            service,
            hbone: true,
            waypoint: true,
            peers: Peers::Tunnel,
            ..HttpOptions::new(CLASS, routes, protocol)
        },
    );

    if protocol.is_http2() {
        manager.http2_protocol_options.get_or_insert_default();
    }

    vec![http_filter(&manager)]
}
