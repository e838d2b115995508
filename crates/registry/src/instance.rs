//! A workload that selectors can match (Istio's `WorkloadInstance`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::{Discoverability, Endpoint, Health, Workload};
use navarch_api::names::PortName;
use navarch_api::object::NamespacedName;

/// The kind of a workload. Pods come first if both are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum InstanceKind {
    Pod,
    /// A WorkloadEntry, or an endpoint within a ServiceEntry.
    WorkloadEntry,
}

/// A workload that selectors can match, not yet bound to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// Namespace and name of the object.
    pub name: NamespacedName,
    /// Pod or WorkloadEntry.
    pub kind: InstanceKind,
    /// Its addresses, the main one first.
    pub addresses: Vec<Arc<str>>,
    pub workload: Arc<Workload>,
    /// Its ports by name.
    pub ports: BTreeMap<Arc<str>, u16>,
    /// Load-balancing weight; 0 if unset.
    pub weight: u32,
    pub health: Health,
    /// Sent although unhealthy.
    pub send_unhealthy: bool,
    /// Its address is a host name or a Unix socket: only services that are resolved by DNS use it.
    pub only_by_dns: bool,
}

impl Instance {
    /// The workload as endpoint of one service port.
    #[must_use]
    pub(super) fn endpoint(
        &self,
        port_name: &PortName,
        legacy_port_key: u16,
        port: u16,
    ) -> Endpoint {
        Endpoint {
            addresses: self.addresses.clone(),
            port_name: port_name.clone(),
            legacy_port_key,
            port,
            workload: self.workload.clone(),
            health: self.health,
            send_unhealthy: self.send_unhealthy,
            weight: self.weight,
            discoverability: Discoverability::Mesh,
        }
    }
}
