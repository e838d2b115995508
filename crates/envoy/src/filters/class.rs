//! The class of a listener, by proxy and direction.

/// The class of a listener, which determines policies, headers and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenerClass {
    /// Inbound, of a sidecar or waypoint.
    SidecarInbound,
    /// For connections that the application of a sidecar opens. Reports metrics as their source.
    SidecarOutbound,
    /// For servers of a router. Telemetry treats a gateway as a client of its backends.
    Gateway,
}
