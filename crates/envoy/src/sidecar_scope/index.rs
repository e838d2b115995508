//! The properties of services that visibility depends on: export, registry and age.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::hosts::EgressHosts;
use crate::export_to::resolve_export_to;
use navarch_api::names::{Hostname, Namespace};
use navarch_push::namespace_list::NamespaceList;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{ExportTo, Registry, Service, ServiceKey};

/// The services of all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServiceIndex;

/// The services of one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostIndex {
    pub(super) host: Hostname,
}

/// Services, and the namespaces that they distinguish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Services {
    /// Oldest first, as in Istio.
    pub(super) services: Vec<IndexedService>,
    /// Namespaces that see other services than the rest, or prefer their own.
    pub(super) mattering: NamespaceList,
    /// The positions of each namespace's services, in the same order; `None` for those of one host,
    /// which are few.
    positions: Option<BTreeMap<Namespace, Vec<usize>>>,
}

/// The properties of a service that visibility depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexedService {
    /// Host and namespace.
    pub(super) key: ServiceKey,
    /// The index among the services of that key; a lookup by key returns index 0.
    pub(super) nth: usize,
    /// Whether it is a Kubernetes Service.
    pub(super) registry: Registry,
    /// Its effective `exportTo`, with the mesh default.
    pub(super) export_to: ExportTo,
    /// Creation time of its object.
    created: Option<Timestamp>,
    /// The name by which equally old ones are sorted.
    name: Arc<str>,
}

/// The mesh-wide default of `exportTo` for services, as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DefaultExport;

impl Query for DefaultExport {
    type Value = Vec<String>;

    fn compute(&self, view: &View<'_>) -> Vec<String> {
        view.mesh().config.default_service_export_to.clone()
    }
}

impl Query for ServiceIndex {
    type Value = Services;

    fn compute(&self, view: &View<'_>) -> Services {
        let default = view.get(&DefaultExport);
        let mut found: Vec<IndexedService> = Vec::new();

        for service in view.all_services() {
            let nth = match found.last() {
                Some(last) if last.key == service.key => last.nth + 1,
                Some(_) | None => 0,
            };
            found.push(indexed(service, nth, &default));
        }

        let mut hosts: Vec<&ServiceKey> = found.iter().map(|service| &service.key).collect();
        hosts.sort_unstable_by(|a, b| {
            a.hostname
                .cmp(&b.hostname)
                .then_with(|| a.namespace.cmp(&b.namespace))
        });
        hosts.dedup();
        let colliding = hosts
            .chunk_by(|a, b| a.hostname == b.hostname)
            .filter(|group| group.len() > 1)
            .flatten();
        let mattering = distinguished_namespaces(&found, colliding.copied());

        Services::new(found, mattering).with_positions()
    }
}

impl Query for HostIndex {
    type Value = Services;

    fn compute(&self, view: &View<'_>) -> Services {
        let Some(namespaces) = view.namespaces_of_host(&self.host) else {
            return Services::default();
        };

        let default = view.get(&DefaultExport);
        let mut found = Vec::new();

        for namespace in namespaces {
            let key = ServiceKey {
                namespace: namespace.clone(),
                hostname: self.host.clone(),
            };
            let services = view.services_of(&key).iter().enumerate();
            found.extend(services.map(|(nth, service)| indexed(service, nth, &default)));
        }

        let keys: BTreeSet<ServiceKey> = found.iter().map(|service| service.key.clone()).collect();
        let colliding = if keys.len() > 1 {
            keys.iter().collect()
        } else {
            Vec::new()
        };

        let mattering = distinguished_namespaces(&found, colliding.into_iter());
        Services::new(found, mattering)
    }
}

/// Extracts the properties that visibility depends on.
fn indexed(service: &Service, nth: usize, default: &[String]) -> IndexedService {
    IndexedService {
        key: service.key.clone(),
        nth,
        registry: service.registry,
        export_to: resolve_export_to(&service.export_to, default, &service.key.namespace),
        created: service.created,
        name: service.name.clone(),
    }
}

/// The namespaces that these services distinguish: those that some are exported to, and those with
/// a conflicting host of their own.
fn distinguished_namespaces<'a>(
    services: &[IndexedService],
    colliding: impl Iterator<Item = &'a ServiceKey>,
) -> NamespaceList {
    let mut namespaces: BTreeSet<Namespace> = colliding.map(|key| key.namespace.clone()).collect();
    for service in services {
        match &service.export_to {
            ExportTo::Namespaces(named) => namespaces.extend(named.iter().cloned()),
            ExportTo::Unset | ExportTo::Public | ExportTo::Nobody => {}
        }
    }
    namespaces.into_iter().collect()
}

impl IndexedService {
    /// Oldest first; equally old ones by name and namespace (Istio's `SortServicesByCreationTime`).
    fn by_age(a: &Self, b: &Self) -> Ordering {
        a.created
            .cmp(&b.created)
            .then_with(|| a.name.cmp(&b.name))
            .then_with(|| a.key.namespace.cmp(&b.key.namespace))
            .then_with(|| a.nth.cmp(&b.nth))
    }

    /// Whether it was created before another.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.created < other.created
    }

    /// Whether the namespace sees it; `None` is any namespace that is not listed.
    pub(super) fn is_visible_to(&self, namespace: Option<&Namespace>) -> bool {
        match &self.export_to {
            ExportTo::Unset | ExportTo::Public => true,
            ExportTo::Nobody => false,
            ExportTo::Namespaces(named) => {
                namespace.is_some_and(|namespace| named.binary_search(namespace).is_ok())
            }
        }
    }

    /// Whether all namespaces see it.
    pub(super) fn is_public(&self) -> bool {
        matches!(self.export_to, ExportTo::Unset | ExportTo::Public)
    }
}

impl Services {
    fn new(mut services: Vec<IndexedService>, mattering: NamespaceList) -> Self {
        services.sort_by(IndexedService::by_age);
        Self {
            services,
            mattering,
            positions: None,
        }
    }

    /// With an index by namespace.
    fn with_positions(mut self) -> Self {
        let mut positions: BTreeMap<Namespace, Vec<usize>> = BTreeMap::new();
        for (position, service) in self.services.iter().enumerate() {
            let namespace = service.key.namespace.clone();
            positions.entry(namespace).or_default().push(position);
        }

        self.positions = Some(positions);
        self
    }

    /// The services that the hosts of an egress listener may import, oldest first: those of the
    /// namespaces that they name, or all.
    pub(super) fn of_hosts(&self, hosts: &EgressHosts) -> Vec<&IndexedService> {
        let named = hosts.namespaces().zip(self.positions.as_ref());
        let Some((namespaces, positions)) = named else {
            return self.services.iter().collect();
        };

        let positions = namespaces.filter_map(|namespace| positions.get(namespace));
        let mut positions: Vec<usize> = positions.flatten().copied().collect();
        positions.sort_unstable();
        let services = positions.into_iter();
        services
            .filter_map(|position| self.services.get(position))
            .collect()
    }
}
