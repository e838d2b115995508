//! WorkloadEntries, and the explicit or implicit endpoints of ServiceEntries.

use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::istio::{ServiceEntry, WorkloadEntry};
use navarch_api::names::{Hostname, NetworkId};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_proto::istio::workload::{Locality, Workload, WorkloadStatus, WorkloadType};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::view::View;
use navarch_registry::model::{Labels, ServiceKey};
use navarch_registry::{split_locality, workload_name_of_entry};

use super::{network_gateway, set_names, set_tunnel};
use crate::mesh::Mesh;
use crate::node::locality;
use crate::policies::policies_of;
use crate::ports;
use crate::selected::SelectingServices;
use crate::service_facts::{FactsOf, Origin, ServiceFacts};
use crate::site::Site;
use crate::waypoint::{self, WorkloadBinding};
use crate::wire::ip_bytes;

/// The workload of a WorkloadEntry of a cluster.
pub(super) fn of_workload_entry(
    name: &NamespacedName,
    site: &Site,
    mesh: &Mesh,
    view: &View<'_>,
) -> Option<Workload> {
    let cluster_ref = &site.cluster_ref;
    if *cluster_ref != ClusterRef::Config && !view.mesh().settings.clusters.remote_workload_entries
    {
        return None;
    }
    let object = view.object_in::<WorkloadEntry>(cluster_ref, name)?;
    let meta = &object.meta;
    let spec = &object.spec;

    let named = meta_of_entry(object);
    let labels = &named.labels;
    let namespace = &meta.key.namespace;
    let is_wanted = |origin: &Origin| {
        mesh.selection.services_select_entries || matches!(origin, Origin::ServiceEntry(_))
    };
    let services = view
        .get(&SelectingServices(cluster_ref.clone(), namespace.clone()))
        .of(labels, is_wanted);

    let WorkloadBinding { waypoint, tunnel } =
        waypoint::of_workload(cluster_ref, labels, namespace, view);
    let network = if spec.network.is_empty() {
        site.network.clone()
    } else {
        NetworkId::new(&spec.network)
    };

    let mut workload = Workload {
        name: meta.key.name.to_string(),
        namespace: namespace.to_string(),
        authorization_policies: policies_of(
            cluster_ref,
            labels,
            namespace,
            waypoint.as_ref(),
            &services,
            view,
        ),
        waypoint: waypoint.and_then(|waypoint| waypoint.address.clone()),
        application_tunnel: tunnel,
        ..entry(spec, &network, &services, site, view)
    };

    set_names(&mut workload, labels, &workload_name_of_entry(&named));
    set_tunnel(&mut workload, labels, &meta.annotations);
    Some(workload)
}

/// The workload of the endpoint of a ServiceEntry that has this address; the last one if there are
/// several.
pub(super) fn of_service_entry(
    name: &NamespacedName,
    address: &str,
    mesh: &Mesh,
    view: &View<'_>,
) -> Option<Workload> {
    let object = view.object::<ServiceEntry>(name)?;
    let meta = &object.meta;
    let spec = &object.spec;
    let mut services = services_of(object, view);
    let implicit;
    let (endpoint, network) = if spec.has_implicit_endpoints() {
        services.retain(|service| service.key.hostname == *address);
        implicit = WorkloadEntry {
            address: address.to_owned(),
            ..WorkloadEntry::default()
        };
        (&implicit, mesh.network.clone())
    } else {
        let at = spec
            .endpoints
            .iter()
            .rposition(|endpoint| endpoint.address == *address)?;
        let before = spec
            .endpoints
            .get(..=at)
            .expect("`rposition` returns an index of the list");

        // As in Istio, an endpoint without a network is in that of the previous one.
        let network = before
            .iter()
            .rev()
            .map(|endpoint| &endpoint.network)
            .find(|network| !network.is_empty());

        (
            before.last()?,
            network.map_or_else(|| mesh.network.clone(), NetworkId::new),
        )
    };

    if services.is_empty() {
        return None;
    }

    let namespace = &meta.key.namespace;
    let binding = match spec.has_implicit_endpoints() {
        true => WorkloadBinding {
            waypoint: None,
            tunnel: None,
        },
        false => waypoint::of_workload(&ClusterRef::Config, &labels_of(endpoint), namespace, view),
    };

    let WorkloadBinding { waypoint, tunnel } = binding;
    let mut workload = Workload {
        name: meta.key.name.to_string(),
        namespace: namespace.to_string(),
        authorization_policies: policies_of(
            &ClusterRef::Config,
            &meta.labels,
            namespace,
            waypoint.as_ref(),
            &services,
            view,
        ),
        waypoint: waypoint.and_then(|waypoint| waypoint.address.clone()),
        application_tunnel: tunnel,
        ..entry(endpoint, &network, &services, &mesh.site, view)
    };

    set_names(&mut workload, &meta.labels, &meta.key.name);
    set_tunnel(&mut workload, &meta.labels, &meta.annotations);
    Some(workload)
}

/// The metadata of a WorkloadEntry with the labels of its workload.
pub(crate) fn meta_of_entry(object: &Object<WorkloadEntry>) -> ObjectMeta {
    ObjectMeta {
        labels: labels_of_entry(object),
        ..object.meta.clone()
    }
}

/// The fields of a workload that depend on its entry only.
fn entry(
    entry: &WorkloadEntry,
    network: &NetworkId,
    services: &[Arc<ServiceFacts>],
    site: &Site,
    view: &View<'_>,
) -> Workload {
    let address: Option<IpAddr> = entry.address.parse().ok();
    Workload {
        addresses: address.map(ip_bytes).into_iter().collect(),
        hostname: if address.is_none() {
            entry.address.clone()
        } else {
            String::new()
        },
        network: network.to_string(),
        network_gateway: network_gateway(network, site, view),
        cluster_id: site.cluster.to_string(),
        service_account: entry.service_account.clone(),
        services: ports::on_entry(&entry.ports, services),
        status: WorkloadStatus::Healthy.into(),
        workload_type: WorkloadType::Pod.into(),
        locality: locality_of(&entry.locality),
        capacity: (entry.weight > 0).then_some(entry.weight),
        ..Workload::default()
    }
}

fn labels_of(entry: &WorkloadEntry) -> Labels {
    entry
        .labels
        .iter()
        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
        .collect()
}

/// The labels of a WorkloadEntry: those of the metadata take precedence over those of the spec.
pub(crate) fn labels_of_entry(object: &Object<WorkloadEntry>) -> Labels {
    let mut labels = labels_of(&object.spec);
    labels.extend(
        object
            .meta
            .labels
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    labels
}

/// The locality of an entry.
fn locality_of(text: &str) -> Option<Locality> {
    let [region, zone, subzone] = split_locality(text).map(str::to_owned);
    locality(region, zone, subzone)
}

/// The services of a ServiceEntry: its hosts that no other object owns.
fn services_of(entry: &Object<ServiceEntry>, view: &View<'_>) -> Vec<Arc<ServiceFacts>> {
    let namespace = &entry.meta.key.namespace;
    let facts = |host: &String| {
        let key = ServiceKey {
            namespace: namespace.clone(),
            hostname: Hostname::new(host),
        };
        (*view.get(&FactsOf(key))).clone()
    };
    let own = Origin::ServiceEntry(entry.meta.key());
    entry
        .spec
        .hosts
        .iter()
        .filter_map(facts)
        .filter(|facts| facts.origin == own)
        .collect()
}
