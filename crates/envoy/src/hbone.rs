//! HBONE: HTTP/2 CONNECT over mutual TLS, the tunnel of ambient mode, terminated and originated by
//! Envoy.
//!
//! ```text
//! peer ─▶ connect_terminate ─▶ main_internal ─▶ application, or the clusters of a waypoint
//! clusters ─▶ connect_originate ─▶ peer            (its address: metadata of the endpoint)
//!          ─▶ inner_connect_originate ─▶ outer_connect_originate ─▶ gateway of another network
//! gateway between networks: connect_terminate ─▶ main_internal ─▶ clusters ─▶ forward_inner_connect ─▶ peer
//! ```
//!
//! A gateway between networks terminates the outer of two tunnels, and forwards the inner one as
//! bytes.
//!
//! The parts are listeners (`listeners::tunnels`, `listeners::tunnel_end`) and clusters
//! (`clusters::tunnels`) of the same name, connected inside Envoy; here are the names, and which
//! proxies have them. Agrees with Istio's `listener_waypoint.go` and `cluster_waypoint.go` in
//! `pilot/pkg/networking/core`, except for the services of waypoints.

use std::sync::Arc;

pub(crate) use navarch_ambient::bound::joins_networks;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The port of HBONE.
pub(crate) const PORT: u16 = 15008;
/// The listener that terminates tunnels.
pub(crate) const TERMINATE: &str = "connect_terminate";
/// The listener for traffic from terminated tunnels.
pub(crate) const MAIN: &str = "main_internal";
/// The listener that originates tunnels.
pub(crate) const ORIGINATE: &str = "connect_originate";
/// The cluster to [`ORIGINATE`], if no service has one.
pub(crate) const ENCAP: &str = "encap";
/// The listener that originates the inner of two tunnels.
pub(crate) const INNER: &str = "inner_connect_originate";
/// The listener that originates the outer of two tunnels.
pub(crate) const OUTER: &str = "outer_connect_originate";
/// Forwards the inner of two tunnels after the outer one was terminated.
pub(crate) const FORWARD: &str = "forward_inner_connect";

/// The filter state key of the identity of a tunnel's peer.
pub(crate) const PEER_PRINCIPAL: &str = "io.istio.peer_principal";
/// The filter state key of the local identity towards such a peer.
pub(crate) const LOCAL_PRINCIPAL: &str = "io.istio.local_principal";
/// The filter state key of the baggage of such a peer, if it is only logged. Istio's filters have
/// their own key.
pub(crate) const BAGGAGE: &str = "navarch.baggage";
/// The metadata key of endpoints with the destination of a tunnel, and its waypoint.
pub(crate) const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";

/// The label of objects that a controller created for a Gateway.
const MANAGED_LABEL: &str = "gateway.istio.io/managed";
/// Its value for waypoints.
const MANAGED_WAYPOINT: &str = "istio.io-mesh-controller";
/// Its value for ingress gateways.
const MANAGED_GATEWAY: &str = "istio.io-gateway-controller";
/// The former label and value of such gateways.
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

/// Whether the clusters of the view's proxy send HBONE to endpoints that accept it. Those of
/// waypoints always do.
pub(crate) fn sends(view: &View<'_>) -> bool {
    view.mesh().settings.hbone.sends || view.proxy().kind() == ProxyKind::Waypoint
}

/// Whether the view's proxy, a sidecar, accepts HBONE.
pub(crate) fn is_taken_by_sidecar(view: &View<'_>) -> bool {
    view.mesh().settings.sidecar_listening_hbone && view.proxy().meta_bool("ENABLE_HBONE")
}

/// Whether the view's proxy disables HBONE to it.
pub(crate) fn is_declined(view: &View<'_>) -> bool {
    view.proxy().meta_bool("DISABLE_HBONE_SEND")
}

/// Whether the view's proxy discovers peer metadata through tunnels, as Istio's own Envoy does.
pub(crate) fn discovers_peers(view: &View<'_>) -> bool {
    view.proxy().supports("envoy.filters.http.peer_metadata")
}

/// Whether the view's proxy, a waypoint or an ingress gateway, has the listeners and clusters to
/// reach other networks. If networks are not joined, stock Envoys do not get them.
pub(crate) fn leaves_network(view: &View<'_>) -> bool {
    let settings = &view.mesh().settings;
    match view.proxy().kind() {
        ProxyKind::Waypoint => {
            settings.hbone.waypoints_leave_network
                && view.derived(&ManagedBy).as_deref() == Some(MANAGED_WAYPOINT)
                && (settings.gateway_api.east_west || discovers_peers(view))
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

/// Whether the proxy, a gateway, serves clients outside the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsIngress;

impl Query for IsIngress {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let labels = view.proxy().labels();
        let has =
            |(label, value): (&str, &str)| labels.get(label).is_some_and(|own| **own == *value);
        has((MANAGED_LABEL, MANAGED_GATEWAY)) || has(INGRESS_LABEL)
    }
}

impl ProxyQuery for IsIngress {}
