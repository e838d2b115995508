//! The directory: an immutable snapshot of all services, endpoints and workloads, cheap to clone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::model::{
    Endpoint, Service, ServiceEndpoints, ServiceKey, ServicePort, ServiceTarget, Workload,
};
use navarch_api::names::{ClusterId, Hostname, Namespace, NetworkId};
use navarch_api::object::NamespacedName;

/// All services, endpoints and workloads at one time.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Services by key. More than one only where several objects declare the same host in one
    /// namespace; the first is the one that lookups return (Kubernetes before ServiceEntry, then
    /// the oldest).
    pub services: OrdMap<ServiceKey, Arc<[Arc<Service>]>>,
    /// Endpoints over all ports of a service. Services without endpoints are absent.
    pub endpoints: OrdMap<ServiceKey, Arc<ServiceEndpoints>>,
    /// Namespaces that declare a host, sorted.
    pub namespaces_of_host: OrdMap<Hostname, Arc<[Namespace]>>,
    /// Service ports of pods by Kubernetes Services, by pod.
    pub pod_targets: OrdMap<NamespacedName, Arc<[ServiceTarget]>>,
    /// Service ports of other workloads, by address.
    pub targets: OrdMap<IpAddr, Arc<TargetsAt>>,
    /// Workloads of pods, by namespace and name.
    pub workloads: OrdMap<NamespacedName, Arc<Workload>>,
    /// Gateways that reach each network, sorted.
    pub network_gateways: OrdMap<NetworkId, Arc<[NetworkGateway]>>,
    /// `pod_targets`, `targets` and `workloads` of each remote cluster. Those of the cluster that
    /// configures the mesh are in the fields above.
    pub remotes: OrdMap<ClusterId, Arc<Directory>>,
}

/// Service ports of the workloads at one address, other than those of pods by Kubernetes Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetsAt {
    /// WorkloadEntries at the address, by name, with their targets by Kubernetes Services. If there
    /// are any, the proxy at this address is one of them, and not a pod.
    pub entries: Vec<EntryTargets>,
    /// Targets of workloads at the address by ServiceEntries, in all namespaces, in the order of
    /// the ServiceEntries' names.
    pub by_service_entry: Vec<ListedTargets>,
    /// The workload at the address by ServiceEntries, by their namespace: the first of each.
    pub workloads: BTreeMap<Namespace, Arc<Workload>>,
    /// Ready pods at the address, if `ENABLE_PROXY_FIND_POD_BY_IP` is set.
    pub pods: Vec<NamespacedName>,
}

/// The targets of one ServiceEntry at one address: each of the endpoints serves each of the
/// services. Both lists are kept, because their product is large for many hosts with many
/// endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTargets {
    /// The services of the ServiceEntry, which differ only in host and address.
    pub(super) services: Arc<[Arc<Service>]>,
    /// The endpoints at the address.
    pub(super) endpoints: Arc<[Arc<Endpoint>]>,
}

impl ListedTargets {
    /// The namespace of the ServiceEntry.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        self.services.first().map(|service| &service.key.namespace)
    }

    /// The first endpoint with a service port.
    pub(super) fn first(&self) -> Option<&Arc<Endpoint>> {
        let service = self.services.first()?;
        self.endpoints
            .iter()
            .find(|endpoint| service.port(endpoint.legacy_port_key).is_some())
    }

    /// All service ports, endpoint by endpoint.
    #[must_use]
    pub fn targets(&self) -> Vec<ServiceTarget> {
        let mut ports: BTreeMap<u16, &ServicePort> = BTreeMap::new();

        for port in self
            .services
            .first()
            .map(|service| &service.ports)
            .into_iter()
            .flatten()
        {
            ports.entry(port.port).or_insert(port);
        }
        let mut targets = Vec::new();

        for endpoint in &*self.endpoints {
            let Some(port) = ports.get(&endpoint.legacy_port_key) else {
                continue;
            };
            let target = |service: &Arc<Service>| ServiceTarget {
                service: service.clone(),
                port: (*port).clone(),
                target_port: endpoint.port,
            };
            targets.extend(self.services.iter().map(target));
        }

        targets
    }
}

/// The targets of a WorkloadEntry by Kubernetes Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTargets {
    /// The WorkloadEntry.
    pub entry: NamespacedName,
    /// Its service ports.
    pub targets: Vec<ServiceTarget>,
}

/// An address through which workloads of another network are reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkGateway {
    /// The network behind it.
    pub network: NetworkId,
    /// The cluster behind it; empty if the whole network is behind it.
    pub cluster: ClusterId,
    /// Its address (IP; hostnames are resolved elsewhere).
    pub address: Arc<str>,
    /// Its mTLS (AUTO_PASSTHROUGH) port.
    pub port: u16,
    /// Its HBONE port, 0 for none.
    pub hbone_port: u16,
    /// The ServiceAccount of its proxies, if it is a Gateway of the Gateway API; else empty.
    pub service_account: NamespacedName,
}

/// The changed values of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryChange {
    /// Services added, changed or removed.
    pub services: BTreeSet<ServiceKey>,
    /// Services whose endpoints changed.
    pub endpoints: BTreeSet<ServiceKey>,
    /// Pods whose service targets changed.
    pub pod_targets: BTreeSet<NamespacedName>,
    /// Addresses whose service targets changed.
    pub targets: BTreeSet<IpAddr>,
    /// Workloads added, changed or removed.
    pub workloads: BTreeSet<NamespacedName>,
    /// Whether the gateways of any network changed.
    pub network_gateways: bool,
    /// Changes of `pod_targets`, `targets` and `workloads` in each remote cluster.
    pub remotes: BTreeMap<ClusterId, DirectoryChange>,
    /// Whether remote clusters were added or removed.
    pub clusters: bool,
}

impl DirectoryChange {
    /// Adds further changes.
    pub(super) fn extend(&mut self, mut other: Self) {
        // Appending to an empty set is free.
        self.services.append(&mut other.services);
        self.endpoints.append(&mut other.endpoints);
        self.pod_targets.append(&mut other.pod_targets);
        self.targets.append(&mut other.targets);
        self.workloads.append(&mut other.workloads);
        self.network_gateways |= other.network_gateways;
        self.clusters |= other.clusters;
        for (cluster, change) in other.remotes {
            self.remotes.entry(cluster).or_default().extend(change);
        }
    }
}

impl DirectoryChange {
    /// Removes entries that are equal in `before` and `after`: several steps may undo each other.
    pub(super) fn drop_unchanged(&mut self, before: &Directory, after: &Directory) {
        self.services
            .retain(|key| before.services.get(key) != after.services.get(key));
        self.endpoints
            .retain(|key| before.endpoints.get(key) != after.endpoints.get(key));
        self.pod_targets
            .retain(|pod| before.pod_targets.get(pod) != after.pod_targets.get(pod));
        self.targets
            .retain(|address| before.targets.get(address) != after.targets.get(address));
        self.workloads
            .retain(|pod| before.workloads.get(pod) != after.workloads.get(pod));
        self.network_gateways &= before.network_gateways != after.network_gateways;
        let none = Arc::new(Directory::default());
        for (cluster, change) in &mut self.remotes {
            let of =
                |directory: &Directory| directory.remotes.get(cluster).unwrap_or(&none).clone();
            change.drop_unchanged(&of(before), &of(after));
        }
    }
}

impl Directory {
    /// The changes from this directory to `other`. If both share their parts the cost depends on
    /// the difference, otherwise on the size.
    #[must_use]
    pub fn change_to(&self, other: &Self) -> DirectoryChange {
        DirectoryChange {
            services: changed_keys(&self.services, &other.services),
            endpoints: changed_keys(&self.endpoints, &other.endpoints),
            pod_targets: changed_keys(&self.pod_targets, &other.pod_targets),
            targets: changed_keys(&self.targets, &other.targets),
            workloads: changed_keys(&self.workloads, &other.workloads),
            network_gateways: self.network_gateways != other.network_gateways,
            ..DirectoryChange::default()
        }
    }
}

/// The keys with different values, or with a value in only one of the maps.
fn changed_keys<K: Ord + Clone, V: PartialEq>(
    old: &OrdMap<K, V>,
    new: &OrdMap<K, V>,
) -> BTreeSet<K> {
    let key = |item: DiffItem<'_, '_, K, V>| match item {
        DiffItem::Add(key, _)
        | DiffItem::Remove(key, _)
        | DiffItem::Update { new: (key, _), .. } => key.clone(),
    };
    old.diff(new).map(key).collect()
}
