//! Workloads by address for proxies: their agents derive the mesh's metrics from access logs.
//!
//! A server has only the address and identity of a TCP client. The other fields of these workloads
//! (name, canonical service, revision, cluster) are also in the metadata of endpoints (EDS).
//! Services, policies, waypoints, nodes and health are only for ztunnel, and for proxies that
//! request all workloads in ambient mode, as Istio's Envoy can.

use navarch_api::istio::WorkloadEntry;
use navarch_api::kubernetes::Pod;
use navarch_api::names::{NetworkId, ResourceName};
use navarch_api::object::{Kind, NamespacedName};
use navarch_base::metrics_log::{LABELS_EXTENSION, exchanged_labels};
use navarch_proto::any::pack;
use navarch_proto::istio::workload::{Extension, Workload, WorkloadType};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::proxy::ProxyKind;
use navarch_push::resource::ResourceType;
use navarch_push::view::View;
use navarch_registry::address_name::{AddressName, NetworkAddress};
use navarch_registry::model::Labels;
use navarch_registry::workload_name_of_entry;

use crate::members::name_in_cluster;
use crate::mesh::MeshFacts;
use crate::networks::network_of;
use crate::wire::ip_bytes;
use crate::workloads::{meta_of_entry, own_fields_of_pod, set_names};

/// Maximum number of workloads at one address: pods in a node's network share theirs.
const MAX_AT: usize = 64;

/// Whether a client that requests by address gets only pods and WorkloadEntries.
pub(crate) fn is_peers_only(resource_type: ResourceType, view: &View<'_>) -> bool {
    if !view.get(&MeshFacts).is_ambient {
        return true;
    }
    // `Address` is for ztunnel: its results depend on no attribute of the client.
    resource_type == ResourceType::Workload
        && match view.proxy().kind() {
            ProxyKind::Sidecar | ProxyKind::Router | ProxyKind::Waypoint => true,
            ProxyKind::Ztunnel | ProxyKind::AgentGateway => false,
        }
}

/// The resource names of the workloads at `network/address`; with an empty network, of any network.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a few kinds are workloads"
)]
pub(crate) fn at(text: &str, view: &View<'_>) -> Vec<ResourceName> {
    let Some(address) = NetworkAddress::parse(text) else {
        return Vec::new();
    };

    let cluster = &view.get(&MeshFacts).cluster;
    let remotes = view.remote_clusters().cloned().map(ClusterRef::Remote);
    let homes: Vec<ClusterRef> = std::iter::once(ClusterRef::Config).chain(remotes).collect();
    let mut names = Vec::new();

    for cluster_ref in homes {
        for object in view.objects_at_in(&cluster_ref, address.address) {
            // In ambient mode Services and other objects have addresses, too.
            let name = match object.kind {
                Kind::Pod => AddressName::Pod(object.name),
                Kind::WorkloadEntry => AddressName::WorkloadEntry(object.name),
                _ => continue,
            };
            let name = name_in_cluster(&cluster_ref, name);
            let fits = |found: Workload| {
                address.network.as_str().is_empty() || found.network == address.network.as_str()
            };
            if workload(&name, view).is_some_and(fits) {
                names.push(name.to_resource_name(cluster));
            }
        }
    }

    names.truncate(MAX_AT);
    names
}

pub(crate) fn peer(name: &ResourceName, view: &View<'_>) -> Option<Workload> {
    let mesh = view.get(&MeshFacts);
    let parsed = AddressName::parse(name.as_str(), &mesh.cluster)?;
    Some(Workload {
        uid: name.to_string(),
        trust_domain: mesh.workload_trust_domain(),
        ..workload(&parsed, view)?
    })
}

/// The workload of a pod or a WorkloadEntry of any cluster.
fn workload(name: &AddressName, view: &View<'_>) -> Option<Workload> {
    let (cluster_ref, name) = if let AddressName::Remote { cluster, workload } = name {
        (ClusterRef::Remote(cluster.clone()), &**workload)
    } else {
        (ClusterRef::Config, name)
    };
    match name {
        AddressName::Pod(pod) => of_pod(&cluster_ref, pod, view),
        AddressName::WorkloadEntry(entry) => of_entry(&cluster_ref, entry, view),
        AddressName::Endpoint { .. }
        | AddressName::SliceEndpoint { .. }
        | AddressName::NetworkGateway { .. }
        | AddressName::SplitHorizon { .. }
        | AddressName::Remote { .. }
        | AddressName::Service(_) => None,
    }
}

/// The workload of a pod, with the names that the metadata of its endpoints has.
fn of_pod(cluster_ref: &ClusterRef, name: &NamespacedName, view: &View<'_>) -> Option<Workload> {
    let own = own_fields_of_pod(view.object_in::<Pod>(cluster_ref, name)?)?;
    let known = view.workload_in(cluster_ref, name)?;
    let network = known.location.network.to_string();
    let cluster_id = known.location.cluster.to_string();
    let mut workload = Workload {
        network,
        cluster_id,
        ..own
    };
    set_names(&mut workload, &known.own_labels, &known.name);
    add_exchanged_labels(&mut workload, &known.own_labels, view);
    Some(workload)
}

/// The workload of a WorkloadEntry with an address.
fn of_entry(cluster_ref: &ClusterRef, name: &NamespacedName, view: &View<'_>) -> Option<Workload> {
    let settings = &view.mesh().settings;
    if *cluster_ref != ClusterRef::Config && !settings.clusters.remote_workload_entries {
        return None;
    }

    let object = view.object_in::<WorkloadEntry>(cluster_ref, name)?;
    let spec = &object.spec;
    let address = spec.address.parse().ok()?;
    let (cluster, network) = match cluster_ref {
        ClusterRef::Remote(cluster) => (cluster.clone(), network_of(view, cluster)),
        ClusterRef::Config | ClusterRef::Unknown => (
            settings.cluster_id.clone(),
            view.get(&MeshFacts).network.clone(),
        ),
    };

    let mut workload = Workload {
        name: name.name.to_string(),
        namespace: name.namespace.to_string(),
        addresses: vec![ip_bytes(address)],
        network: if spec.network.is_empty() {
            network
        } else {
            NetworkId::new(&spec.network)
        }
        .to_string(),
        cluster_id: cluster.to_string(),
        service_account: spec.service_account.clone(),
        workload_type: WorkloadType::Pod.into(),
        ..Workload::default()
    };

    let named = meta_of_entry(object);
    set_names(
        &mut workload,
        &named.labels,
        &workload_name_of_entry(&named),
    );
    add_exchanged_labels(&mut workload, &named.labels, view);

    Some(workload)
}

/// Adds the labels that Istio's proxies would exchange besides names, if the settings list any.
fn add_exchanged_labels(workload: &mut Workload, labels: &Labels, view: &View<'_>) {
    let settings = &view.mesh().settings;
    if !settings.metadata_exchange {
        return;
    }

    let text = exchanged_labels(&settings.metadata_exchange_labels, |name| {
        labels.get(name).map(|value| &**value)
    });
    if !text.is_empty() {
        workload.extensions.push(Extension {
            name: LABELS_EXTENSION.to_owned(),
            config: Some(pack(&text)),
        });
    }
}
