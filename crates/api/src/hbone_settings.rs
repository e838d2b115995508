//! Settings for HBONE, the tunnel of ambient mode.

use serde::{Deserialize, Serialize};

/// Istio's environment variables for HBONE and waypoints. Without `PILOT_ENABLE_AMBIENT` all but
/// [`layered_authorization`](Self::layered_authorization) are off regardless of their settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, one for each environment variable"
)]
pub struct HboneSettings {
    /// `PILOT_ENABLE_SENDING_HBONE`: sidecars and gateways send HBONE to workloads that support it.
    /// Default that of ambient mode.
    pub sends: bool,
    /// `PILOT_PREFER_SENDING_HBONE`: HBONE is preferred to Istio's mutual TLS for workloads that
    /// support both. Default false.
    pub is_preferred: bool,
    /// `ENABLE_INGRESS_WAYPOINT_ROUTING`: gateways send to the waypoints of services that request
    /// it. Default that of ambient mode.
    pub ingress_waypoints: bool,
    /// `NAVARCH_SIDECAR_WAYPOINTS`: sidecars send to the waypoints of services that request it.
    /// Default false.
    pub sidecar_waypoints: bool,
    /// `AMBIENT_ENABLE_BAGGAGE`: proxies exchange workload metadata in the header `baggage`.
    /// Default false.
    pub baggage: bool,
    /// `AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT`: waypoints get the configuration to reach other
    /// networks. Default that of ambient mode.
    pub waypoints_leave_network: bool,
    /// `AMBIENT_ENABLE_MULTI_NETWORK_INGRESS`: ingress gateways get that configuration, too, where
    /// networks are joined. Default false.
    pub gateways_leave_network: bool,
    /// `ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES`: policies that select a waypoint's pods
    /// apply to its tunnels. Default false.
    pub layered_authorization: bool,
    /// `PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE` in bytes; 0 is Envoy's default. Default 0.
    pub stream_window: u32,
    /// `PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE` in bytes; 0 is Envoy's default. Default 0.
    pub connection_window: u32,
}
