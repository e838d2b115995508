//! Merging of services, endpoints and network gateways of several clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::{Aggregate, RegistryChanges};
use crate::directory::{Directory, DirectoryChange, NetworkGateway};
use crate::live::Registry;
use crate::model::{Registry as Origin, Service, ServiceEndpoints, ServiceKey};
use navarch_api::names::{Hostname, Namespace, NetworkId};
use navarch_api::object::NamespacedName;

/// The services of one key.
type Slot = Arc<[Arc<Service>]>;

impl Aggregate {
    /// The registries of all clusters, that of the configuration cluster first.
    fn registries(&self) -> impl Iterator<Item = &Registry> {
        std::iter::once(&self.own).chain(self.remotes.values())
    }

    /// Updates the merged directory after changes of the clusters' directories; returns its
    /// changes.
    pub(super) fn merge(&mut self, outcomes: RegistryChanges) -> DirectoryChange {
        let RegistryChanges {
            own,
            remotes,
            aliased,
            clusters,
            ..
        } = outcomes;

        if self.remotes.is_empty() && !clusters {
            self.directory = self.own.directory().clone();
            return own;
        }

        let mut change = DirectoryChange {
            clusters,
            ..DirectoryChange::default()
        };
        let parts = || std::iter::once(&own).chain(remotes.values());
        let changed = parts().flat_map(|part| &part.services);
        let hidden = changed
            .flat_map(|key| {
                self.registries()
                    .flat_map(|registry| registry.hosts_with_alias(key))
            })
            .cloned();

        let aliased = self.keys_of(&aliased.into_iter().chain(hidden).collect());
        let keys: BTreeSet<&ServiceKey> = parts()
            .flat_map(|part| &part.services)
            .chain(&aliased)
            .collect();
        for key in keys {
            self.merge_services(key, &mut change);
        }

        let keys: BTreeSet<&ServiceKey> = parts().flat_map(|part| &part.endpoints).collect();
        for key in keys {
            self.merge_endpoints(key, &mut change);
        }

        if clusters || parts().any(|part| part.network_gateways) {
            let gateways = self.merged_gateways();
            change.network_gateways = self.directory.network_gateways != gateways;
            self.directory.network_gateways = gateways;
        }

        (change.pod_targets, change.targets, change.workloads) =
            (own.pod_targets, own.targets, own.workloads);
        change.remotes = remotes;
        self.share_parts();

        change
    }

    /// Copies the parts that are kept by cluster.
    fn share_parts(&mut self) {
        let own = self.own.directory();
        if self.remotes.is_empty() {
            // With a single cluster its directory is used as it is.
            self.directory = own.clone();
            return;
        }
        self.directory.pod_targets = own.pod_targets.clone();
        self.directory.targets = own.targets.clone();
        self.directory.workloads = own.workloads.clone();
        let remotes = self.remotes.iter();
        self.directory.remotes = remotes
            .map(|(cluster, registry)| (cluster.clone(), Arc::new(registry.directory().clone())))
            .collect();
    }

    /// The keys of services that have one of these hosts.
    fn keys_of(&self, hosts: &BTreeSet<Hostname>) -> Vec<ServiceKey> {
        let keys = |host: &Hostname| -> Vec<ServiceKey> {
            let declared = self
                .registries()
                .filter_map(|registry| registry.directory().namespaces_of_host.get(host));
            let namespaces = declared.flat_map(|namespaces| namespaces.iter());
            namespaces
                .map(|namespace| ServiceKey {
                    namespace: namespace.clone(),
                    hostname: host.clone(),
                })
                .collect()
        };
        hosts.iter().flat_map(keys).collect()
    }

    fn merge_services(&mut self, key: &ServiceKey, change: &mut DirectoryChange) {
        let new = self.merged_services(key);
        let old = self.directory.services.get(key);
        if old == new.as_ref() {
            return;
        }
        if old.is_some() != new.is_some() {
            self.show_host(key, new.is_some());
        }
        match new {
            Some(new) => self.directory.services.insert(key.clone(), new),
            None => self.directory.services.remove(key),
        };
        change.services.insert(key.clone());
    }

    /// All services of a key. Kubernetes Services are merged into that of the first cluster, with
    /// the addresses and identities of all (Istio's `mergeService`). Aliases of the host may be in
    /// any cluster.
    fn merged_services(&self, key: &ServiceKey) -> Option<Slot> {
        let found = self
            .registries()
            .filter_map(|registry| registry.directory().services.get(key));
        let slots: Vec<&Slot> = found.collect();
        let aliases = self.aliases_of(&key.hostname);
        let has_all = |service: &Service| service.aliases.iter().eq(aliases.iter().copied());
        if let [only] = &*slots
            && only.iter().all(|service| has_all(service))
        {
            return Some((*only).clone());
        }
        let all = || slots.iter().flat_map(|slot| slot.iter());
        let mut declared = all().filter(|service| service.registry == Origin::Kubernetes);
        let merged = declared.next().map(|first| {
            let mut merged = Service::clone(first);
            declared.for_each(|other| merged.merge_with(other));
            Arc::new(merged)
        });

        let others = all()
            .filter(|service| service.registry != Origin::Kubernetes)
            .cloned();
        let services = merged.into_iter().chain(others).map(|service| {
            if has_all(&service) {
                return service;
            }
            Arc::new(Service {
                aliases: aliases.iter().copied().cloned().collect(),
                ..Service::clone(&service)
            })
        });

        let services: Vec<Arc<Service>> = services.collect();
        (!services.is_empty()).then(|| services.into())
    }

    /// The aliases of a host in all clusters. If several clusters declare a name, only the Service
    /// of the first cluster is used. It may be an alias of another host, or not an alias.
    fn aliases_of(&self, host: &Hostname) -> BTreeSet<&ServiceKey> {
        let declares = |registry: &Registry, key: &ServiceKey| {
            let slot = registry.directory().services.get(key);
            slot.is_some_and(|slot| {
                slot.iter()
                    .any(|service| service.registry == Origin::Kubernetes)
            })
        };

        let is_first = |place: usize, key: &ServiceKey| {
            !self
                .registries()
                .take(place)
                .any(|earlier| declares(earlier, key))
        };

        let of_all = self.registries().enumerate();
        let of_all = of_all.flat_map(|(place, registry)| {
            registry
                .aliases_of(host)
                .iter()
                .map(move |key| (place, key))
        });

        of_all
            .filter(|(place, key)| is_first(*place, key))
            .map(|(_, key)| key)
            .collect()
    }

    /// Adds or removes a namespace that declares a host.
    fn show_host(&mut self, key: &ServiceKey, declared: bool) {
        let hosts = &mut self.directory.namespaces_of_host;
        let known = hosts
            .get(&key.hostname)
            .into_iter()
            .flat_map(|namespaces| namespaces.iter());
        let mut namespaces: BTreeSet<Namespace> = known.cloned().collect();
        match declared {
            true => namespaces.insert(key.namespace.clone()),
            false => namespaces.remove(&key.namespace),
        };
        if namespaces.is_empty() {
            hosts.remove(&key.hostname);
        } else {
            hosts.insert(key.hostname.clone(), namespaces.into_iter().collect());
        }
    }

    fn merge_endpoints(&mut self, key: &ServiceKey, change: &mut DirectoryChange) {
        let found = self
            .registries()
            .filter_map(|registry| registry.directory().endpoints.get(key));
        let parts: Vec<&Arc<ServiceEndpoints>> = found.collect();
        let new = match &*parts {
            [only] => Some((*only).clone()),
            all => {
                let endpoints = all
                    .iter()
                    .flat_map(|part| part.endpoints.iter().cloned())
                    .collect();
                ServiceEndpoints::gathered(endpoints).map(Arc::new)
            }
        };

        if self.directory.endpoints.get(key) == new.as_ref() {
            return;
        }

        match new {
            Some(new) => self.directory.endpoints.insert(key.clone(), new),
            None => self.directory.endpoints.remove(key),
        };

        change.endpoints.insert(key.clone());
    }

    /// The gateways of all clusters, by network.
    fn merged_gateways(&self) -> OrdMap<NetworkId, Arc<[NetworkGateway]>> {
        let mut by_network: BTreeMap<&NetworkId, BTreeSet<&NetworkGateway>> = BTreeMap::new();
        for registry in self.registries() {
            for (network, gateways) in &registry.directory().network_gateways {
                by_network
                    .entry(network)
                    .or_default()
                    .extend(gateways.iter());
            }
        }
        let sorted = by_network.into_iter().map(|(network, gateways)| {
            let mut gateways: Vec<NetworkGateway> = gateways.into_iter().cloned().collect();
            gateways.sort_by(|a, b| (&a.address, a.port).cmp(&(&b.address, b.port)));
            (network.clone(), Arc::from(gateways))
        });
        sorted.collect()
    }
}

impl Service {
    /// Merges the service of the same host in another cluster.
    fn merge_with(&mut self, other: &Self) {
        let own = self.cluster_vips.iter();
        let new = other.cluster_vips.iter();
        let new = new.filter(|(cluster, vips)| {
            !vips.is_empty() && self.cluster_vips.get(*cluster).is_none()
        });
        self.cluster_vips = own
            .chain(new)
            .map(|(cluster, vips)| (cluster.clone(), vips.clone()))
            .collect();

        let known = self.service_accounts.clone();
        self.service_accounts.extend(
            other
                .service_accounts
                .iter()
                .filter(|account| !known.contains(account))
                .cloned(),
        );

        self.service_accounts.sort_unstable();
    }
}

/// The merged service of the Kubernetes Services of a name in all clusters.
pub(super) fn real_service(
    directory: &Directory,
    name: &NamespacedName,
    domain: &str,
) -> Option<Arc<Service>> {
    let hostname = Hostname::new(format!("{}.{}.svc.{domain}", name.name, name.namespace));
    let key = ServiceKey {
        namespace: name.namespace.clone(),
        hostname,
    };
    directory
        .services
        .get(&key)?
        .iter()
        .find(|service| service.registry == Origin::Kubernetes)
        .cloned()
}
