//! The class of a listener, by proxy and direction.

/// The class of a listener, which determines policies, headers and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenerClass {
    /// Inbound, of a sidecar or waypoint.
    SidecarInbound,
    /// Outbound, of a sidecar.
    SidecarOutbound,
    /// Of a gateway.
    Gateway,
}
