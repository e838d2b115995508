//! One egress listener of a scope.

use super::hosts::EgressHosts;
use navarch_api::istio::{CaptureMode, SidecarPort};

/// One egress listener of the scope (Istio's `IstioEgressListenerWrapper`).
#[derive(Clone, Debug, PartialEq)]
pub struct EgressListener {
    /// Its port; `None` for the one of all ports without their own listener.
    pub port: Option<SidecarPort>,
    /// IP or `unix://` path to listen on; if empty, it depends on the kind of listener.
    pub bind: String,
    /// How traffic is redirected to it.
    pub capture_mode: CaptureMode,
    /// The port to which services are reduced; `None` imports all ports.
    pub matched_port: Option<u16>,
    /// Whether a Sidecar declares it.
    pub declared: bool,
    /// Its imported hosts.
    pub(super) hosts: EgressHosts,
    /// Whether it is for a gateway, which imports all visible services, without selecting one
    /// namespace per host.
    pub(super) for_gateway: bool,
}
