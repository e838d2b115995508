//! ServiceEntry: services that no other registry knows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wire_enum::wire_enum;
use super::{WorkloadEntry, WorkloadSelector};
use crate::typed::Typed;

wire_enum! {
    /// Whether the service is part of the mesh.
    Location {
        /// It is not; clients do not use the mesh's mutual TLS.
        MeshExternal = 0, "MESH_EXTERNAL";
        /// It is, as a virtual machine's service may be.
        MeshInternal = 1, "MESH_INTERNAL";
    }
}

wire_enum! {
    /// How clients find the service's addresses.
    Resolution {
        /// They go where the connection was bound for.
        None = 0, "NONE";
        /// From the endpoints listed or selected.
        Static = 1, "STATIC";
        /// By DNS, all addresses being used.
        Dns = 2, "DNS";
        /// By DNS, the first address being used for new connections.
        DnsRoundRobin = 3, "DNS_ROUND_ROBIN";
        /// By DNS, of the host that each request names.
        DynamicDns = 4, "DYNAMIC_DNS";
    }
}

/// `networking.istio.io/ServiceEntry`: a service added to the mesh's own list.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntry {
    /// The names of the service; may be wildcards.
    pub hosts: Vec<String>,
    /// Virtual IPs or CIDRs of the service.
    pub addresses: Vec<String>,
    /// The ports.
    pub ports: Vec<ServicePort>,
    /// Whether the service is part of the mesh.
    pub location: Location,
    /// How clients find its addresses.
    pub resolution: Resolution,
    /// The endpoints. Not together with `workload_selector`.
    pub endpoints: Vec<WorkloadEntry>,
    /// Pods and WorkloadEntries of the namespace that are the endpoints.
    pub workload_selector: Option<WorkloadSelector>,
    /// Namespaces that see this object: `.` its own, `*` all, `~` none, or names. Empty is the mesh default.
    pub export_to: Vec<String>,
    /// Names of which the server's certificate must hold one.
    pub subject_alt_names: Vec<String>,
    /// `status.addresses`: the addresses allocated to hosts that have none. Not part of the spec, so never read with it.
    #[serde(skip)]
    pub allocated: Vec<ServiceEntryAddress>,
}

impl ServiceEntry {
    /// Whether its hosts stand for its endpoints: it is resolved by DNS, and neither lists nor selects any.
    #[must_use]
    pub fn has_implicit_endpoints(&self) -> bool {
        let by_dns = matches!(self.resolution, Resolution::Dns | Resolution::DnsRoundRobin | Resolution::DynamicDns);
        by_dns && self.endpoints.is_empty() && self.workload_selector.is_none()
    }

    /// Takes over what counts of an object's `status`. The control plane writes it: what cannot be read is not there.
    pub fn take_status(&mut self, status: &Value) {
        let status = Typed::<ServiceEntryStatus>::from_proto_json(status);
        self.allocated = status.map(|status| status.value.addresses).unwrap_or_default();
    }
}

/// A port of the service.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// The number.
    pub number: u32,
    /// `HTTP`, `HTTPS`, `GRPC`, `HTTP2`, `MONGO`, `TCP` or `TLS`; empty leaves it to detection.
    pub protocol: String,
    /// A name for the port, unique in the service.
    pub name: String,
    /// The port of the endpoints; 0 is `number`.
    pub target_port: u32,
}

/// What the control plane says of a ServiceEntry.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryStatus {
    /// Conditions, as written.
    pub conditions: Vec<Value>,
    /// Findings of the analysis, as written.
    pub validation_messages: Vec<Value>,
    /// The generation that the status is about.
    pub observed_generation: i64,
    /// Addresses allocated to hosts that have none.
    pub addresses: Vec<ServiceEntryAddress>,
}

/// An address allocated to a host.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryAddress {
    /// The IP.
    pub value: String,
    /// The host that has it.
    pub host: String,
}
