//! Pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::kubernetes::{EndpointSlice, Pod};
use navarch_api::names::Hostname;
use navarch_api::object::{NamespacedName, Object};
use navarch_proto::istio::workload::{NetworkMode, Workload, WorkloadStatus, WorkloadType};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::workload_name_of_pod;

use super::{set_names, set_tunnel};
use crate::mesh::MeshFacts;
use crate::node::LocalityOfNode;
use crate::policies::policies_of;
use crate::ports;
use crate::selected::SelectingServices;
use crate::service_facts::{Origin, ServiceFacts, facts_of_service};
use crate::site::Site;
use crate::waypoint::{self, WorkloadBinding};
use crate::wire::ip_bytes;

/// The workload of a pod of a cluster; `None` if it has ended or has no address yet.
pub(super) fn workload(name: &NamespacedName, site: &Site, view: &View<'_>) -> Option<Workload> {
    let pod = view.object_in::<Pod>(&site.cluster_ref, name)?;
    let own = own_fields_of_pod(pod)?;
    let meta = &pod.meta;
    let spec = &pod.spec;
    let cluster_ref = &site.cluster_ref;
    let namespace = &meta.key.namespace;
    let services = services(pod, cluster_ref, view);
    let WorkloadBinding { waypoint, tunnel } =
        waypoint::of_workload(cluster_ref, &meta.labels, namespace, view);

    let is_healthy = spec.ready && !meta.deleting;
    let locality = spec
        .node
        .as_ref()
        .and_then(|node| (*view.get(&LocalityOfNode(cluster_ref.clone(), node.clone()))).clone());
    let mut workload = Workload {
        network: site.network.to_string(),
        network_gateway: site.gateway.clone(),
        cluster_id: site.cluster.to_string(),
        node: spec.node.as_deref().unwrap_or_default().to_owned(),
        services: ports::on_pod(spec, &services),
        authorization_policies: policies_of(
            cluster_ref,
            &meta.labels,
            namespace,
            waypoint.as_ref(),
            &services,
            view,
        ),
        status: if is_healthy {
            WorkloadStatus::Healthy
        } else {
            WorkloadStatus::Unhealthy
        }
        .into(),
        waypoint: waypoint.and_then(|waypoint| waypoint.address.clone()),
        application_tunnel: tunnel,
        locality,
        ..own
    };

    set_names(&mut workload, &meta.labels, &workload_name_of_pod(pod));
    set_tunnel(&mut workload, &meta.labels, &meta.annotations);
    Some(workload)
}

/// The fields of a workload that depend on its pod only; `None` if the pod has ended or has no
/// address yet.
pub(crate) fn own_fields_of_pod(pod: &Object<Pod>) -> Option<Workload> {
    let key = &pod.meta.key;
    let spec = &pod.spec;
    if spec.is_terminal() || spec.pod_ips.is_empty() {
        return None;
    }

    Some(Workload {
        name: key.name.to_string(),
        namespace: key.namespace.to_string(),
        addresses: spec.pod_ips.iter().copied().map(ip_bytes).collect(),
        service_account: spec.service_account.to_string(),
        workload_type: WorkloadType::Pod.into(),
        network_mode: if spec.host_network {
            NetworkMode::HostNetwork
        } else {
            NetworkMode::Standard
        }
        .into(),
        ..Workload::default()
    })
}

/// The services of a pod: those that select it, then those without a selector whose EndpointSlices
/// list it.
fn services(
    pod: &Object<Pod>,
    cluster_ref: &ClusterRef,
    view: &View<'_>,
) -> Vec<Arc<ServiceFacts>> {
    let meta = &pod.meta;
    let selection = view.get(&MeshFacts).selection;
    let is_wanted =
        |origin: &Origin| selection.entries_select_pods || matches!(origin, Origin::Service(_));
    let selecting = view.get(&SelectingServices(
        cluster_ref.clone(),
        meta.key.namespace.clone(),
    ));
    let mut services = selecting.of(&meta.labels, is_wanted);
    let mut seen: BTreeSet<Hostname> = services
        .iter()
        .map(|service| service.key.hostname.clone())
        .collect();

    for slice in view.slices_of_pod_in(cluster_ref, &meta.key) {
        let Some(service) = (*view.get(&ServiceOfSlice(cluster_ref.clone(), slice))).clone() else {
            continue;
        };
        let Some(facts) = facts_of_service(cluster_ref, &service, view) else {
            continue;
        };
        if seen.insert(facts.key.hostname.clone()) {
            services.push(facts);
        }
    }

    services
}

/// The Service of an EndpointSlice of a cluster. Slices change with every pod that they list, their
/// Service does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServiceOfSlice(ClusterRef, NamespacedName);

impl Query for ServiceOfSlice {
    type Value = Option<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        service_of_slice(view.object_in::<EndpointSlice>(&self.0, &self.1)?)
    }
}

pub(super) fn service_of_slice(slice: &Object<EndpointSlice>) -> Option<NamespacedName> {
    Some(NamespacedName::of(
        slice.meta.key.namespace.clone(),
        slice.spec.service.clone()?,
    ))
}
