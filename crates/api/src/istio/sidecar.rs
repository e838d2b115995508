//! Sidecar: the listeners and the configuration scope of a workload's proxy.

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{ConnectionPoolSettings, Destination, ServerTlsSettings, WorkloadSelector};

/// `networking.istio.io/Sidecar`: narrows the listeners of a namespace's proxies and the services
/// that they receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Sidecar {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub workload_selector: Option<WorkloadSelector>,
    /// Inbound listeners; empty derives the listeners from the workload's services.
    pub ingress: Vec<IstioIngressListener>,
    /// Outbound listeners and their hosts; empty makes all visible hosts reachable.
    pub egress: Vec<IstioEgressListener>,
    /// Limits on connections from the proxy to its workload.
    pub inbound_connection_pool: Option<ConnectionPoolSettings>,
    /// Policy for traffic to hosts outside the service registry; unset means the mesh default.
    pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
}

/// One inbound listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct IstioIngressListener {
    /// The port that the listener binds to.
    pub port: Option<SidecarPort>,
    /// The IP that the listener binds to; empty is the workload's IP.
    pub bind: String,
    /// How the listener receives traffic.
    pub capture_mode: CaptureMode,
    /// The target of the traffic: `127.0.0.1:port`, `[::1]:port`, `0.0.0.0:port`, `[::]:port` or a
    /// `unix://` path.
    pub default_endpoint: String,
    /// TLS settings for clients outside the mesh.
    pub tls: Option<ServerTlsSettings>,
    /// Limits on connections to the workload's port.
    pub connection_pool: Option<ConnectionPoolSettings>,
}

/// The hosts that the workload may reach, on one port or on all ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct IstioEgressListener {
    /// The port; unset covers all ports without a listener of their own.
    pub port: Option<SidecarPort>,
    /// IP or `unix://` path that the listener binds to.
    pub bind: String,
    /// How the listener receives traffic.
    pub capture_mode: CaptureMode,
    /// Hosts that the workload may reach, as `namespace/host`; `*` is all namespaces, `.` the
    /// Sidecar's own, `~` none.
    pub hosts: Vec<String>,
}

wire_enum! {
    /// Policy for traffic to hosts outside the service registry.
    OutboundTrafficPolicyMode {
        /// Envoy drops the traffic.
        RegistryOnly = 0, "REGISTRY_ONLY";
        /// Envoy forwards the traffic to the original destination.
        AllowAny = 1, "ALLOW_ANY";
    }
}

/// Policy for traffic to hosts outside the service registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct OutboundTrafficPolicy {
    /// Whether Envoy forwards or drops the traffic.
    pub mode: OutboundTrafficPolicyMode,
    /// The service that forwards the traffic, with `ALLOW_ANY`.
    pub egress_proxy: Option<Destination>,
}

wire_enum! {
    /// How a listener receives traffic.
    CaptureMode {
        /// The environment's default.
        Default = 0, "DEFAULT";
        /// iptables redirects the traffic to the listener.
        Iptables = 1, "IPTABLES";
        /// The client connects to the listener directly.
        None = 2, "NONE";
    }
}

/// A port of a Sidecar listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarPort {
    /// The port number; 0 with a Unix domain socket.
    pub number: u32,
    /// The protocol of the port, such as `HTTP` or `TCP`.
    pub protocol: String,
    /// A name for the port.
    pub name: String,
    /// The workload's port; deprecated and ignored.
    pub target_port: u32,
}
