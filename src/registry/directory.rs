//! The directory: an immutable picture of all services, endpoints and workloads, cheap to clone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;

use super::model::{Service, ServiceEndpoints, ServiceKey, ServiceTarget, Workload};
use crate::api::names::{Hostname, Namespace, NetworkId};
use crate::api::object::NamespacedName;

/// All services, endpoints and workloads of one moment.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Services by key. More than one only where several objects declare the same host in one namespace; the first is the
    /// one that a look-up means (Kubernetes before ServiceEntry, then the oldest).
    pub services: OrdMap<ServiceKey, Arc<[Arc<Service>]>>,
    /// Endpoints by service.
    pub endpoints: OrdMap<ServiceKey, Arc<ServiceEndpoints>>,
    /// Namespaces that declare a host.
    pub namespaces_of_host: OrdMap<Hostname, Arc<BTreeSet<Namespace>>>,
    /// What the workload at an address serves, ordered as Istio orders service targets.
    pub targets: OrdMap<IpAddr, Arc<[ServiceTarget]>>,
    /// Workloads (pods, WorkloadEntries) by namespace and name.
    pub workloads: OrdMap<NamespacedName, Arc<Workload>>,
    /// Gateways that reach each network, sorted.
    pub network_gateways: OrdMap<NetworkId, Arc<[NetworkGateway]>>,
}

/// An address through which workloads of another network are reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkGateway {
    /// The network behind it.
    pub network: NetworkId,
    /// The cluster behind it; empty if the whole network is.
    pub cluster: crate::api::names::ClusterId,
    /// Its address (IP; hostnames are resolved elsewhere).
    pub address: Arc<str>,
    /// Its mTLS (AUTO_PASSTHROUGH) port.
    pub port: u16,
    /// Its HBONE port, 0 for none.
    pub hbone_port: u16,
}

/// What of the directory changed by value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryChange {
    /// Services added, changed or removed.
    pub services: BTreeSet<ServiceKey>,
    /// Services whose endpoints changed.
    pub endpoints: BTreeSet<ServiceKey>,
    /// Addresses whose service targets changed.
    pub targets: BTreeSet<IpAddr>,
    /// Workloads added, changed or removed.
    pub workloads: BTreeSet<NamespacedName>,
    /// Whether the gateways of any network changed.
    pub network_gateways: bool,
}
