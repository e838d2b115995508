//! Settings for HBONE, the tunnel of ambient mode.

use serde::{Deserialize, Serialize};

/// Istio's environment variables about HBONE and waypoints. Without `PILOT_ENABLE_AMBIENT` all but
/// [`layered_authorization`](Self::layered_authorization) are off regardless of their settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that do not depend on each other, as the environment has them"
)]
pub struct HboneSettings {
    /// `PILOT_ENABLE_SENDING_HBONE`: sidecars and gateways send HBONE to workloads that take it. Default that of ambient mode.
    pub sends: bool,
    /// `PILOT_PREFER_SENDING_HBONE`: HBONE comes before Istio's mutual TLS where a workload takes both. Default false.
    pub is_preferred: bool,
    /// `ENABLE_INGRESS_WAYPOINT_ROUTING`: gateways send to waypoints where services ask for it. Default that of ambient mode.
    pub ingress_waypoints: bool,
    /// `AMBIENT_ENABLE_BAGGAGE`: peers tell each other who they are by the header `baggage`. Default false.
    pub baggage: bool,
    /// `AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT`: waypoints have what it takes to reach other networks. Default that of ambient mode.
    pub waypoints_leave_network: bool,
    /// `AMBIENT_ENABLE_MULTI_NETWORK_INGRESS`: ingress gateways have that, too, where networks are joined. Default false.
    pub gateways_leave_network: bool,
    /// `ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES`: policies that select a waypoint's pods guard its tunnels. Default false.
    pub layered_authorization: bool,
    /// `PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE` in bytes; 0 is Envoy's own. Default 0.
    pub stream_window: u32,
    /// `PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE` in bytes; 0 is Envoy's own. Default 0.
    pub connection_window: u32,
}
