//! HBONE: HTTP/2 CONNECT over mutual TLS, the tunnel of ambient mode, as Envoy ends and begins it.
//!
//! ```text
//! peer ─▶ connect_terminate ─▶ main_internal ─▶ application, or the clusters of a waypoint
//! clusters ─▶ connect_originate ─▶ peer            (its address: metadata of the endpoint)
//!          ─▶ inner_connect_originate ─▶ outer_connect_originate ─▶ gateway of another network
//! gateway between networks: connect_terminate ─▶ main_internal ─▶ clusters ─▶ forward_inner_connect ─▶ peer
//! ```
//!
//! A gateway between networks ends the outer of two tunnels, and hands the inner one on as bytes.
//!
//! The parts are listeners and clusters of one name each, joined inside of Envoy. Agrees with Istio's `listener_waypoint.go` and
//! `cluster_waypoint.go` in `pilot/pkg/networking/core`, as far as those are not about what a waypoint serves.

pub(crate) mod clusters;
pub(crate) mod filters;
pub(crate) mod listeners;
pub(crate) mod sockets;
mod terminate;

use std::sync::Arc;

pub(crate) use navarch_ambient::bound::joins_networks;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The port of HBONE.
pub(crate) const PORT: u16 = 15008;
/// Ends tunnels.
pub(crate) const TERMINATE: &str = "connect_terminate";
/// Takes what came through them.
pub(crate) const MAIN: &str = "main_internal";
/// Begins tunnels.
pub(crate) const ORIGINATE: &str = "connect_originate";
/// The cluster before [`ORIGINATE`], where no service has one.
pub(crate) const ENCAP: &str = "encap";
/// Begins the inner of two tunnels.
pub(crate) const INNER: &str = "inner_connect_originate";
/// Begins the outer of two tunnels.
pub(crate) const OUTER: &str = "outer_connect_originate";
/// Forwards the inner of two tunnels after the outer one was terminated.
pub(crate) const FORWARD: &str = "forward_inner_connect";

/// The filter state key of the identity of a tunnel's peer.
pub(crate) const PEER_PRINCIPAL: &str = "io.istio.peer_principal";
/// The key of the identity by which such a peer was answered.
pub(crate) const LOCAL_PRINCIPAL: &str = "io.istio.local_principal";
/// The key of what such a peer says of itself, where that is only logged. Istio's filters have one of their own.
pub(crate) const BAGGAGE: &str = "navarch.baggage";
/// The key of endpoints' metadata that says where a tunnel leads, and where it is entered.
pub(crate) const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";

/// The label of what a controller made for a Gateway.
const MANAGED_LABEL: &str = "gateway.istio.io/managed";
/// Its value for waypoints.
const MANAGED_WAYPOINT: &str = "istio.io-mesh-controller";
/// Its value for ingress gateways.
const MANAGED_GATEWAY: &str = "istio.io-gateway-controller";
/// The label and value by which such gateways were known before.
const INGRESS_LABEL: (&str, &str) = ("istio", "ingressgateway");

/// The controller that manages the proxy, from its label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ManagedBy;

impl Query for ManagedBy {
    type Value = Option<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.proxy().labels().get(MANAGED_LABEL).cloned()
    }
}

impl ProxyQuery for ManagedBy {}

/// Whether the clusters of the view's proxy send HBONE to endpoints that take it. Those of waypoints always do.
pub(crate) fn sends(view: &View<'_>) -> bool {
    view.mesh().settings.hbone.sends || view.proxy().kind() == ProxyKind::Waypoint
}

/// Whether the view's proxy, a sidecar, takes HBONE.
pub(crate) fn is_taken_by_sidecar(view: &View<'_>) -> bool {
    view.mesh().settings.sidecar_listening_hbone && view.proxy().meta_bool("ENABLE_HBONE")
}

/// Whether the view's proxy wants no HBONE to be sent.
pub(crate) fn is_declined(view: &View<'_>) -> bool {
    view.proxy().meta_bool("DISABLE_HBONE_SEND")
}

/// Whether the view's proxy discovers peer metadata by tunnels: Istio's own Envoy does.
fn knows_peers(view: &View<'_>) -> bool {
    view.proxy().supports("envoy.filters.http.peer_metadata")
}

/// Whether the view's proxy, a waypoint or an ingress gateway, has what it takes to reach other networks. Where networks are not
/// joined, stock Envoys go without it.
pub(crate) fn leaves_network(view: &View<'_>) -> bool {
    let settings = &view.mesh().settings;
    match view.proxy().kind() {
        ProxyKind::Waypoint => {
            settings.hbone.waypoints_leave_network
                && view.derived(&ManagedBy).as_deref() == Some(MANAGED_WAYPOINT)
                && (settings.gateway_api.east_west || knows_peers(view))
        }
        ProxyKind::Router => {
            settings.gateway_api.east_west
                && settings.hbone.gateways_leave_network
                && sends(view)
                && !is_declined(view)
                && *view.derived(&IsIngress)
        }
        ProxyKind::Sidecar | ProxyKind::Ztunnel | ProxyKind::AgentGateway => false,
    }
}

/// Whether the proxy, a gateway, serves clients from outside of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsIngress;

impl Query for IsIngress {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let labels = view.proxy().labels();
        let has = |(label, value): (&str, &str)| labels.get(label).is_some_and(|own| **own == *value);
        has((MANAGED_LABEL, MANAGED_GATEWAY)) || has(INGRESS_LABEL)
    }
}

impl ProxyQuery for IsIngress {}
