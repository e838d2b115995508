//! The listeners that originate tunnels, and the one that forwards an inner tunnel (`hbone` has the
//! drawing).

use navarch_proto::envoy::config::core::v3::HeaderValueOption;
use navarch_proto::envoy::config::listener::v3::listener::{
    InternalListenerConfig, ListenerSpecifier,
};
use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener, ListenerFilter};
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::TunnelingConfig;

use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::listener::original_destination;
use crate::filters::metrics_log;
use crate::filters::network::{tcp_filter, tcp_proxy};
use crate::filters::tunnel;
use crate::hbone::{FORWARD, INNER, ORIGINATE, OUTER};
use navarch_base::metrics_log::BAGGAGE_VARIABLE;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;

/// The header for a gateway of another network with the policies that were already applied.
const SOURCE_HEADER: &str = "x-istio-source";
/// The header with the source network of a connection.
const NETWORK_HEADER: &str = "x-forwarded-network";
/// The header with peer metadata.
const BAGGAGE: (&str, &str) = ("baggage", "%FILTER_STATE(io.istio.baggage:PLAIN)%");

/// Originates a tunnel to the original destination of a connection.
pub(super) fn originate(view: &View<'_>) -> Listener {
    let class = match view.proxy().kind() {
        ProxyKind::Router => ListenerClass::Gateway,
        ProxyKind::Sidecar => ListenerClass::SidecarOutbound,
        ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => {
            ListenerClass::SidecarInbound
        }
    };

    let baggage = view.mesh().settings.hbone.baggage;
    let tunnel = TunnelingConfig {
        hostname: "%DOWNSTREAM_LOCAL_ADDRESS%".to_owned(),
        propagate_response_headers: baggage,
        headers_to_add: own_baggage(view).into_iter().collect(),
        ..TunnelingConfig::default()
    };

    let before = tunnel::listener_baggage(view).into_iter().collect();
    listener(
        view,
        ORIGINATE,
        class,
        before,
        Some(tunnel),
        vec![original_destination()],
    )
}

/// Forwards the inner of two tunnels to its destination, unmodified.
pub(super) fn forward(view: &View<'_>) -> Listener {
    listener(
        view,
        FORWARD,
        ListenerClass::SidecarInbound,
        Vec::new(),
        None,
        vec![original_destination()],
    )
}

/// Originates the inner tunnel to a target behind a gateway of another network.
pub(super) fn inner(view: &View<'_>) -> Listener {
    let network = view.proxy().network();
    let mut headers = vec![tunnel::overwriting(NETWORK_HEADER, network.as_str())];
    headers.extend(own_baggage(view));
    let tunnel = TunnelingConfig {
        hostname: tunnel::target_format(),
        propagate_response_headers: view.mesh().settings.hbone.baggage,
        headers_to_add: headers,
        ..TunnelingConfig::default()
    };

    let mut before = vec![tunnel::endpoint_metadata(view)];
    before.extend(tunnel::listener_baggage(view));
    listener(
        view,
        INNER,
        ListenerClass::SidecarInbound,
        before,
        Some(tunnel),
        Vec::new(),
    )
}

/// Originates the outer tunnel to a gateway of another network.
pub(super) fn outer(view: &View<'_>) -> Listener {
    let source = match view.proxy().kind() {
        ProxyKind::Router => "gateway",
        ProxyKind::Waypoint => "waypoint",
        ProxyKind::Sidecar | ProxyKind::Ztunnel | ProxyKind::AgentGateway => "sidecar",
    };

    let tunnel = TunnelingConfig {
        hostname: tunnel::target_format(),
        headers_to_add: vec![tunnel::overwriting(SOURCE_HEADER, source)],
        ..TunnelingConfig::default()
    };

    listener(
        view,
        OUTER,
        ListenerClass::SidecarInbound,
        Vec::new(),
        Some(tunnel),
        vec![original_destination()],
    )
}

/// The peer metadata of the proxy, if sent: from Istio's filters, or from the agent of an Envoy
/// without them.
fn own_baggage(view: &View<'_>) -> Option<HeaderValueOption> {
    let (key, value) = BAGGAGE;
    if metrics_log::are_taken(view) {
        return Some(tunnel::overwriting(
            key,
            &format!("%ENVIRONMENT({BAGGAGE_VARIABLE})%"),
        ));
    }
    view.mesh()
        .settings
        .hbone
        .baggage
        .then(|| tunnel::overwriting(key, value))
}

/// An internal listener that sends all traffic to the cluster of its name, through a tunnel if it
/// originates one.
fn listener(
    view: &View<'_>,
    name: &str,
    class: ListenerClass,
    mut before: Vec<Filter>,
    tunnel: Option<TunnelingConfig>,
    listener_filters: Vec<ListenerFilter>,
) -> Listener {
    let logs = view.get(&AccessLogsOf::of_class(class));
    let mut proxy = tcp_proxy(name, name);
    proxy.tunneling_config = tunnel;

    // Only failures are logged here: other connections are logged at their source.
    proxy.access_log.clone_from(&logs.tunnel_begin);
    before.push(tcp_filter(&proxy));
    Listener {
        name: name.to_owned(),
        use_original_dst: Some(false),
        listener_specifier: Some(ListenerSpecifier::InternalListener(
            InternalListenerConfig {},
        )),
        listener_filters,
        filter_chains: vec![FilterChain {
            filters: before,
            ..FilterChain::default()
        }],
        access_log: logs.listener.clone(),
        ..Listener::default()
    }
}
