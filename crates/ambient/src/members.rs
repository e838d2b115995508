//! Lookup of requested names: an address, a host or a workload (Istio's `index.Lookup`).

use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::istio::{ServiceEntry, WorkloadEntry};
use navarch_api::kubernetes::{EndpointSlice, Pod};
use navarch_api::names::{Hostname, NetworkId, ResourceName};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::view::View;
use navarch_registry::address_index::LabelKey;
use navarch_registry::address_name::{AddressName, NetworkAddress};
use navarch_registry::model::ServiceKey;

use crate::mesh::MeshFacts;
use crate::selected::host_of;
use crate::service_facts::{FactsOf, Origin, ServiceFacts, facts_of_service};
use crate::site::{remote_sites, site_clusters};
use crate::wire::network_address;
use crate::workloads::SummaryOf;
use crate::{network_gateways, services, split_horizon};

/// The resource names that a requested name refers to: the workload of that name; else the
/// workloads at that address; else the service of that name or at that address, and its workloads.
pub(crate) fn resolve_name(text: &str, view: &View<'_>) -> Vec<ResourceName> {
    let mesh = view.get(&MeshFacts);
    let to_names = |names: Vec<AddressName>| -> Vec<ResourceName> {
        names
            .iter()
            .map(|name| name.to_resource_name(&mesh.cluster))
            .collect()
    };

    let name = AddressName::parse(text, &mesh.cluster);
    if let Some(name) = &name
        && !matches!(name, AddressName::Service(_))
    {
        let exists = view.get(&SummaryOf(name.clone())).is_some();
        return if exists {
            to_names(vec![name.clone()])
        } else {
            Vec::new()
        };
    }

    let address = NetworkAddress::parse(text);
    if let Some(address) = &address {
        let workloads = workloads_at(address, view);
        if !workloads.is_empty() {
            return to_names(workloads);
        }
    }

    let of_name = match name {
        Some(AddressName::Service(key)) => (*view.get(&FactsOf(key))).clone(),
        Some(_) | None => None,
    };
    let service = of_name.or_else(|| service_at(address.as_ref()?, view));
    let Some(service) = service else {
        return Vec::new();
    };

    let mut names = vec![AddressName::Service(service.key.clone())];
    names.extend(workloads_of(&service, view));
    to_names(names)
}

/// The names of the workloads on the client's own node, which it always gets.
pub(crate) fn on_own_node(view: &View<'_>) -> Vec<ResourceName> {
    let mesh = view.get(&MeshFacts);
    let Some(node) = view
        .proxy()
        .meta("NODE_NAME")
        .filter(|node| !node.is_empty())
    else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for cluster_ref in site_clusters(view) {
        let pods = view
            .pods_on_in(&cluster_ref, &node)
            .map(|pod| name_in_cluster(&cluster_ref, AddressName::Pod(pod)));
        names.extend(pods.map(|pod| pod.to_resource_name(&mesh.cluster)));
    }
    names
}

fn workloads_at(address: &NetworkAddress, view: &View<'_>) -> Vec<AddressName> {
    let mut names: Vec<AddressName> = Vec::new();
    for cluster_ref in site_clusters(view) {
        for object in view.objects_at_in(&cluster_ref, address.address) {
            names.extend(
                workloads_in(&cluster_ref, &object, view)
                    .into_iter()
                    .filter(|name| has_address(name, address, view)),
            );
        }
    }
    for known in network_gateways::of_remotes(view) {
        let exists = known.gateway.network == address.network
            && known.gateway.address.parse() == Ok(address.address);
        names.extend(exists.then(|| split_horizon::gateway_name(&known)));
    }
    names
}

/// Whether a workload exists in the network of an address. The index ensures that it has the
/// address, unless it is one of several workloads of an object.
pub(crate) fn has_address(name: &AddressName, address: &NetworkAddress, view: &View<'_>) -> bool {
    let has_it = if let AddressName::Remote { cluster, workload } = name {
        may_have_address(
            &ClusterRef::Remote(cluster.clone()),
            workload,
            address,
            view,
        )
    } else {
        may_have_address(&ClusterRef::Config, name, address, view)
    };
    has_it
        && view
            .get(&SummaryOf(name.clone()))
            .as_ref()
            .as_ref()
            .is_some_and(|found| found.network == address.network)
}

/// Whether a workload of a cluster that the index returned for an address has that address, in any
/// network.
fn may_have_address(
    cluster_ref: &ClusterRef,
    name: &AddressName,
    address: &NetworkAddress,
    view: &View<'_>,
) -> bool {
    match name {
        AddressName::Endpoint { address: own, .. } => own.parse() == Ok(address.address),
        AddressName::SliceEndpoint {
            slice,
            address: first,
        } => {
            let slice = view.object_in::<EndpointSlice>(cluster_ref, slice);
            let mut endpoints = slice.into_iter().flat_map(|slice| &slice.spec.endpoints);
            endpoints.any(|endpoint| {
                endpoint.addresses.first() == Some(first)
                    && endpoint.addresses.contains(&address.address)
            })
        }
        AddressName::NetworkGateway { address: own, .. } => own.parse() == Ok(address.address),
        AddressName::Pod(_) | AddressName::WorkloadEntry(_) => true,
        AddressName::SplitHorizon { .. } | AddressName::Service(_) | AddressName::Remote { .. } => {
            false
        }
    }
}

/// The name of a workload of a cluster.
pub(crate) fn name_in_cluster(cluster_ref: &ClusterRef, name: AddressName) -> AddressName {
    match cluster_ref {
        ClusterRef::Remote(cluster) => name.of_remote(cluster),
        ClusterRef::Config | ClusterRef::Unknown => name,
    }
}

/// The workloads that an object of a cluster can declare.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a few kinds are workloads"
)]
pub(crate) fn workloads_in(
    cluster_ref: &ClusterRef,
    object: &ObjectRef,
    view: &View<'_>,
) -> Vec<AddressName> {
    let name = object.name.clone();
    let found = match object.kind {
        Kind::Pod => vec![AddressName::Pod(name)],
        Kind::WorkloadEntry => vec![AddressName::WorkloadEntry(name)],
        Kind::ServiceEntry => {
            let entry = view.object::<ServiceEntry>(&name);
            entry
                .map(|entry| endpoints_of(&entry.spec, &name))
                .unwrap_or_default()
        }
        Kind::EndpointSlice => {
            let slice = view.object_in::<EndpointSlice>(cluster_ref, &name);
            let endpoints = slice.into_iter().flat_map(|slice| &slice.spec.endpoints);
            let addresses = endpoints.filter(|endpoint| endpoint.pod.is_none());
            let addresses = addresses.filter_map(|endpoint| endpoint.addresses.first());
            addresses
                .map(|address| AddressName::SliceEndpoint {
                    slice: name.clone(),
                    address: *address,
                })
                .collect()
        }
        Kind::KubernetesGateway => {
            let gateway = view.object::<navarch_api::gateway_api::KubernetesGateway>(&name);
            let remote =
                gateway.map(|gateway| navarch_registry::remote_gateway::remote_gateways(gateway));
            let remote = remote.unwrap_or_default().into_iter();
            let name = |one: navarch_registry::remote_gateway::RemoteGateway| {
                AddressName::NetworkGateway {
                    network: one.network,
                    address: one.address,
                    port: one.port,
                }
            };
            remote.map(name).collect()
        }
        _ => Vec::new(),
    };

    found
        .into_iter()
        .map(|name| name_in_cluster(cluster_ref, name))
        .collect()
}

pub(crate) fn endpoints_of(entry: &ServiceEntry, name: &NamespacedName) -> Vec<AddressName> {
    let of = |address: &String| AddressName::Endpoint {
        entry: name.clone(),
        address: address.as_str().into(),
    };
    match entry.has_implicit_endpoints() {
        true => entry.hosts.iter().map(of).collect(),
        false => entry
            .endpoints
            .iter()
            .map(|endpoint| of(&endpoint.address))
            .collect(),
    }
}

/// The service at an address, the first of several.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a few kinds declare services"
)]
fn service_at(address: &NetworkAddress, view: &View<'_>) -> Option<Arc<ServiceFacts>> {
    let suffix = &view.mesh().settings.domain_suffix;
    let wanted = network_address(address.address, &address.network);

    for object in view.objects_at_in(&ClusterRef::Config, address.address) {
        let namespace = &object.name.namespace;
        let hosts = match object.kind {
            Kind::Service => vec![host_of(&object.name.name, namespace, suffix)],
            Kind::ServiceEntry => {
                let entry = view.object::<ServiceEntry>(&object.name);
                entry
                    .into_iter()
                    .flat_map(|entry| &entry.spec.hosts)
                    .map(Hostname::new)
                    .collect()
            }
            _ => continue,
        };

        for hostname in hosts {
            let key = ServiceKey {
                namespace: namespace.clone(),
                hostname,
            };
            let service = services::service(&key, view);
            let mut addresses = service.iter().flat_map(|service| &service.addresses);
            // Ranges are indexed by their first address.
            if addresses.any(|one| one.network == wanted.network && one.address == wanted.address) {
                return (*view.get(&FactsOf(key))).clone();
            }
        }
    }

    let remote = split_horizon::service_at(address, view)?;
    (*view.get(&FactsOf(remote))).clone()
}

pub(crate) fn service_key_at(
    address: IpAddr,
    network: &NetworkId,
    view: &View<'_>,
) -> Option<ServiceKey> {
    service_at(
        &NetworkAddress {
            network: network.clone(),
            address,
        },
        view,
    )
    .map(|service| service.key.clone())
}

fn workloads_of(service: &ServiceFacts, view: &View<'_>) -> Vec<AddressName> {
    let mut candidates = match &service.origin {
        Origin::Service(name) => of_service(&ClusterRef::Config, name, service, view),
        Origin::ServiceEntry(name) => {
            let mut candidates = selected_by(&ClusterRef::Config, service, view);
            let entry = view.object::<ServiceEntry>(name);
            candidates.extend(
                entry
                    .into_iter()
                    .flat_map(|entry| endpoints_of(&entry.spec, name)),
            );
            candidates
        }
    };

    // In remote clusters they are the workloads of the Service there.
    if let Origin::Service(name) = &service.origin {
        for cluster in remote_sites(view).iter() {
            let cluster_ref = ClusterRef::Remote(cluster.clone());
            let there = facts_of_service(&cluster_ref, name, view);
            candidates.extend(
                there
                    .into_iter()
                    .flat_map(|facts| of_service(&cluster_ref, name, &facts, view)),
            );
        }
    }

    candidates.sort_unstable();
    candidates.dedup();
    let own = service.name();
    candidates.retain(|name| {
        let summary = view.get(&SummaryOf(name.clone()));
        summary
            .as_ref()
            .as_ref()
            .is_some_and(|summary| summary.services.binary_search(&own).is_ok())
    });

    candidates.extend(split_horizon::workloads_of(view, &service.key));
    candidates
}

/// Candidates for workloads of a Service of a cluster: those that it selects, and those in its
/// EndpointSlices.
fn of_service(
    cluster_ref: &ClusterRef,
    name: &NamespacedName,
    service: &ServiceFacts,
    view: &View<'_>,
) -> Vec<AddressName> {
    let mut candidates = selected_by(cluster_ref, service, view);
    for object in view.objects_with_in(
        cluster_ref,
        LabelKey::of_slices(&name.namespace, &name.name),
    ) {
        let Some(slice) = view.object_in::<EndpointSlice>(cluster_ref, &object.name) else {
            continue;
        };
        let pods = slice
            .spec
            .endpoints
            .iter()
            .filter_map(|one| one.pod.clone());
        candidates.extend(pods.map(|pod| name_in_cluster(cluster_ref, AddressName::Pod(pod))));
        candidates.extend(workloads_in(cluster_ref, &object, view));
    }
    candidates
}

/// Candidates for workloads that a service selects in a cluster.
fn selected_by(
    cluster_ref: &ClusterRef,
    service: &ServiceFacts,
    view: &View<'_>,
) -> Vec<AddressName> {
    if service.selector.is_empty() {
        return Vec::new();
    }
    let pods = selected_pods(cluster_ref, service, view)
        .into_iter()
        .map(AddressName::Pod);
    let entries = view
        .list_in::<WorkloadEntry>(cluster_ref, &service.key.namespace)
        .into_iter();
    let entries = entries.map(|entry| AddressName::WorkloadEntry(entry.meta.key()));
    pods.chain(entries)
        .map(|name| name_in_cluster(cluster_ref, name))
        .collect()
}

/// The pods of a cluster that a service may select: those with the rarest label of its selector.
fn selected_pods(
    cluster_ref: &ClusterRef,
    service: &ServiceFacts,
    view: &View<'_>,
) -> Vec<NamespacedName> {
    let namespace = &service.key.namespace;
    let pods = |label| {
        let objects = view
            .objects_with_in(cluster_ref, label)
            .filter(|object| object.kind == Kind::Pod);
        objects.map(|object| object.name).collect::<Vec<_>>()
    };

    match LabelKey::of_selector(namespace, &service.selector)
        .map(pods)
        .min_by_key(Vec::len)
    {
        Some(pods) => pods,
        None => view
            .list_in::<Pod>(cluster_ref, namespace)
            .into_iter()
            .map(|pod| pod.meta.key())
            .collect(),
    }
}
