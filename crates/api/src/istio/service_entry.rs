//! ServiceEntry: services outside the platform's registry.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wire_enum::wire_enum;
use super::{WorkloadEntry, WorkloadSelector};
use crate::typed::Typed;

wire_enum! {
    /// Whether the service is part of the mesh.
    Location {
        /// The service is outside the mesh; clients do not use the mesh's mutual TLS.
        MeshExternal = 0, "MESH_EXTERNAL";
        /// The service is part of the mesh, such as a service on virtual machines.
        MeshInternal = 1, "MESH_INTERNAL";
    }
}

wire_enum! {
    /// How clients resolve the service's endpoints.
    Resolution {
        /// Envoy forwards to the original destination of the connection.
        None = 0, "NONE";
        /// The listed or selected endpoints.
        Static = 1, "STATIC";
        /// By DNS, with all resolved addresses.
        Dns = 2, "DNS";
        /// By DNS, with the first resolved address for new connections.
        DnsRoundRobin = 3, "DNS_ROUND_ROBIN";
        /// By DNS, with the host of each request.
        DynamicDns = 4, "DYNAMIC_DNS";
    }
}

/// `networking.istio.io/ServiceEntry`: a service added to the mesh's registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntry {
    /// The hosts of the service; may be wildcards.
    pub hosts: Vec<String>,
    /// Virtual IPs or CIDRs of the service.
    pub addresses: Vec<String>,
    /// The ports of the service.
    pub ports: Vec<ServicePort>,
    /// Whether the service is part of the mesh.
    pub location: Location,
    /// How clients resolve the service's endpoints.
    pub resolution: Resolution,
    /// The endpoints. Mutually exclusive with `workload_selector`.
    pub endpoints: Vec<WorkloadEntry>,
    /// Selects the namespace's pods and WorkloadEntries as endpoints.
    pub workload_selector: Option<WorkloadSelector>,
    /// Namespaces that see this object: `.` is its own, `*` all, `~` none, else names. Empty is the
    /// mesh default.
    pub export_to: Vec<String>,
    /// Accepted subject alternative names; the server's certificate must contain one of them.
    pub subject_alt_names: Vec<String>,
    /// `status.addresses`: addresses allocated to hosts without addresses. Not part of the spec, so
    /// decoding skips it.
    #[serde(skip)]
    pub allocated: Vec<ServiceEntryAddress>,
}

impl ServiceEntry {
    /// Whether the hosts are the endpoints: resolution is by DNS, and endpoints are neither listed
    /// nor selected.
    #[must_use]
    pub fn has_implicit_endpoints(&self) -> bool {
        let by_dns = matches!(
            self.resolution,
            Resolution::Dns | Resolution::DnsRoundRobin | Resolution::DynamicDns
        );
        by_dns && self.endpoints.is_empty() && self.workload_selector.is_none()
    }

    /// Copies the addresses of an object's `status`. The control plane writes the status; an
    /// unreadable one is ignored.
    pub fn take_status(&mut self, status: &Value) {
        let status = Typed::<ServiceEntryStatus>::from_proto_json(status);
        self.allocated = status
            .map(|status| status.value.addresses)
            .unwrap_or_default();
    }
}

/// A port of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// The port number.
    pub number: u32,
    /// `HTTP`, `HTTPS`, `GRPC`, `HTTP2`, `MONGO`, `TCP` or `TLS`; empty enables protocol detection.
    pub protocol: String,
    /// The port's name, unique in the service.
    pub name: String,
    /// The port on the endpoints; 0 is `number`.
    pub target_port: u32,
}

/// The control plane's status of a ServiceEntry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryStatus {
    /// Conditions, not decoded further.
    pub conditions: Vec<Value>,
    /// Findings of the analysis, not decoded further.
    pub validation_messages: Vec<Value>,
    /// The generation that the status describes.
    pub observed_generation: i64,
    /// Addresses allocated to hosts without addresses.
    pub addresses: Vec<ServiceEntryAddress>,
}

/// An address allocated to a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryAddress {
    /// The allocated IP.
    pub value: String,
    /// The host with this address.
    pub host: String,
}
