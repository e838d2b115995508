//! Pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::kubernetes::{EndpointSlice, Pod};
use navarch_api::names::Hostname;
use navarch_api::object::{NamespacedName, Object};
use navarch_proto::istio::workload::{NetworkMode, Workload, WorkloadStatus, WorkloadType};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;
use navarch_registry::workload_name_of_pod;

use super::{set_names, set_tunnel};
use crate::mesh::Mesh;
use crate::node::LocalityOfNode;
use crate::policies::policies_of;
use crate::ports;
use crate::selected::{SelectingServices, host_of};
use crate::service_facts::{FactsOf, Origin, ServiceFacts};
use crate::waypoint::{self, WorkloadBinding};
use crate::wire::ip_bytes;

/// The workload of a pod; none of one that has ended or has no address yet.
pub(super) fn workload(name: &NamespacedName, mesh: &Mesh, view: &View<'_>) -> Option<Workload> {
    let pod = view.object::<Pod>(name)?;
    let (meta, spec) = (&pod.meta, &pod.spec);
    if spec.is_terminal() || spec.pod_ips.is_empty() {
        return None;
    }
    let services = services(pod, mesh, view);
    let WorkloadBinding { waypoint, tunnel } = waypoint::of_workload(&meta.labels, &meta.key.namespace, view);
    let is_healthy = spec.ready && !meta.deleting;
    let locality = spec.node.as_ref().and_then(|node| (*view.get(&LocalityOfNode(node.clone()))).clone());
    let mut workload = Workload {
        name: meta.key.name.to_string(),
        namespace: meta.key.namespace.to_string(),
        addresses: spec.pod_ips.iter().copied().map(ip_bytes).collect(),
        network: mesh.network.to_string(),
        network_gateway: mesh.network_gateway.clone(),
        cluster_id: mesh.cluster.to_string(),
        service_account: spec.service_account.to_string(),
        node: spec.node.as_deref().unwrap_or_default().to_owned(),
        services: ports::on_pod(spec, &services),
        authorization_policies: policies_of(&meta.labels, &meta.key.namespace, waypoint.as_ref(), &services, view),
        status: if is_healthy { WorkloadStatus::Healthy } else { WorkloadStatus::Unhealthy }.into(),
        waypoint: waypoint.and_then(|waypoint| waypoint.address.clone()),
        application_tunnel: tunnel,
        workload_type: WorkloadType::Pod.into(),
        network_mode: if spec.host_network { NetworkMode::HostNetwork } else { NetworkMode::Standard }.into(),
        locality,
        ..Workload::default()
    };
    set_names(&mut workload, &meta.labels, &workload_name_of_pod(pod));
    set_tunnel(&mut workload, &meta.labels, &meta.annotations);
    Some(workload)
}

/// The services that a pod belongs to: those that select it, then those whose EndpointSlices list it all the same.
fn services(pod: &Object<Pod>, mesh: &Mesh, view: &View<'_>) -> Vec<Arc<ServiceFacts>> {
    let meta = &pod.meta;
    let is_wanted = |origin: &Origin| mesh.selection.entries_select_pods || matches!(origin, Origin::Service(_));
    let mut services = view.get(&SelectingServices(meta.key.namespace.clone())).of(&meta.labels, is_wanted);
    let mut seen: BTreeSet<Hostname> = services.iter().map(|service| service.key.hostname.clone()).collect();
    for slice in view.slices_of_pod(&meta.key) {
        let Some(key) = (*view.get(&ServiceOfSlice(slice.clone()))).clone() else { continue };
        if !seen.insert(key.hostname.clone()) {
            continue;
        }
        let facts = (*view.get(&FactsOf(key))).clone();
        services.extend(facts.filter(|facts| matches!(facts.origin, Origin::Service(_))));
    }
    services
}

/// The service that an EndpointSlice is a part of. Slices change with every pod that they list, whose they are does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServiceOfSlice(NamespacedName);

impl Query for ServiceOfSlice {
    type Value = Option<ServiceKey>;

    fn compute(&self, view: &View<'_>) -> Option<ServiceKey> {
        service_of_slice(view.object::<EndpointSlice>(&self.0)?, view)
    }
}

/// The service that an EndpointSlice is a part of.
pub(super) fn service_of_slice(slice: &Object<EndpointSlice>, view: &View<'_>) -> Option<ServiceKey> {
    let namespace = slice.meta.key.namespace.clone();
    let hostname = host_of(slice.spec.service.as_ref()?, &namespace, &view.mesh().settings.domain_suffix);
    Some(ServiceKey { namespace, hostname })
}
