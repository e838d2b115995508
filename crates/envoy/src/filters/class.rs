//! Which traffic of which proxy a listener takes.

/// The class of a listener: policies, headers and metrics differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenerClass {
    /// Into the workload of a sidecar (and of a waypoint).
    SidecarInbound,
    /// Out of the workload of a sidecar.
    SidecarOutbound,
    /// Into a gateway.
    Gateway,
}
