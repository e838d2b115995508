//! Sidecar: what a workload's proxy listens to and knows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{ConnectionPoolSettings, Destination, ServerTlsSettings, WorkloadSelector};

/// `networking.istio.io/Sidecar`: narrows what the proxies of a namespace listen to and know.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sidecar {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub workload_selector: Option<WorkloadSelector>,
    /// What is listened to for the workload; empty derives it from the workload's services.
    pub ingress: Vec<IstioIngressListener>,
    /// What the workload may reach; empty is all that is visible.
    pub egress: Vec<IstioEgressListener>,
    /// Limits on connections from the proxy to its workload.
    pub inbound_connection_pool: Option<ConnectionPoolSettings>,
    /// What becomes of traffic to unknown places; `None` is the mesh default.
    pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
}

/// One port listened to for the workload.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioIngressListener {
    /// The port.
    pub port: Option<SidecarPort>,
    /// The IP to listen on; empty is that of the workload.
    pub bind: String,
    /// How traffic gets to the listener.
    pub capture_mode: CaptureMode,
    /// Where the traffic goes: `127.0.0.1:port`, `[::1]:port`, `0.0.0.0:port`, `[::]:port` or `unix://` path.
    pub default_endpoint: String,
    /// TLS from outside the mesh.
    pub tls: Option<ServerTlsSettings>,
    /// Limits on connections to the workload's port.
    pub connection_pool: Option<ConnectionPoolSettings>,
}

/// What the workload may reach, on one port or on all.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioEgressListener {
    /// The port; `None` is all ports that no other listener takes.
    pub port: Option<SidecarPort>,
    /// IP or `unix://` path to listen on.
    pub bind: String,
    /// How traffic gets to the listener.
    pub capture_mode: CaptureMode,
    /// What may be reached, as `namespace/host`; `*`, `.` (own) and `~` (none) stand for namespaces.
    pub hosts: Vec<String>,
}

wire_enum! {
    /// What becomes of traffic to places that the mesh does not know.
    OutboundTrafficPolicyMode {
        /// It is dropped.
        RegistryOnly = 0, "REGISTRY_ONLY";
        /// It passes.
        AllowAny = 1, "ALLOW_ANY";
    }
}

/// What becomes of traffic to unknown places.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutboundTrafficPolicy {
    /// Whether it passes.
    pub mode: OutboundTrafficPolicyMode,
    /// The service through which it goes, with `ALLOW_ANY`.
    pub egress_proxy: Option<Destination>,
}

wire_enum! {
    /// How traffic gets to a listener.
    CaptureMode {
        /// As the environment has it.
        Default = 0, "DEFAULT";
        /// Redirected by iptables.
        Iptables = 1, "IPTABLES";
        /// The client connects to it itself.
        None = 2, "NONE";
    }
}

/// A port of a Sidecar listener.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarPort {
    /// The number; 0 with a Unix socket.
    pub number: u32,
    /// The protocol.
    pub protocol: String,
    /// A name for the port.
    pub name: String,
    /// The port of the workload; superseded, read by nothing.
    pub target_port: u32,
}
