//! Multi-cluster services (`serviceScopeConfigs` of mesh config), and their parts in other clusters
//! and networks.
//!
//! A Service is multi-cluster if its labels and those of its namespace match, in the cluster that
//! declares it. Then it forms one service with the Services of its name in other clusters. All of
//! this requires `AMBIENT_ENABLE_MULTI_NETWORK`. Agrees with Istio's `matchServiceScope` and
//! `multicluster.go` in `pilot/pkg/serviceregistry/ambient`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::kubernetes::{Namespace as NamespaceObject, Service, ServiceType};
use navarch_api::mesh::{LabelSelector, ServiceScope};
use navarch_api::names::{ClusterId, Namespace, NetworkId};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::NETWORK_LABEL;
use navarch_registry::model::{Labels, ServiceKey};

use crate::bound::{self, keys_by_namespace, leads_to_waypoints};
use crate::selected::host_of;
use crate::service_facts::{FactsOf, Origin, origin};
use crate::services;
use crate::wire::ip_of;

/// Whether endpoints of other clusters belong to a service (Istio's service scope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceReach {
    /// Endpoints of the configuration cluster only.
    Cluster,
    /// Endpoints of all clusters of the mesh.
    Mesh,
    /// A ServiceEntry: its declared endpoints, for all clusters; no endpoints of other clusters.
    Entry,
}

/// The scope of a service; `None` if no object declares it, or only cluster-local ones of remote
/// clusters do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServiceReachOf(ServiceKey);

/// The multi-cluster Services of remote clusters with one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RemotePartsOf(ServiceKey);

/// The network of a remote cluster; empty if unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NetworkOf(ClusterId);

/// The multi-cluster services of a namespace, and their waypoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MultiClusterServicesIn(Namespace);

/// A Service of a remote cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemotePart {
    pub(crate) cluster: ClusterId,
    /// The network of the cluster.
    pub(crate) network: NetworkId,
    pub(crate) object: Arc<Object<Service>>,
}

/// Whether multi-network ambient mode is enabled.
#[must_use]
pub(crate) fn are_joined(view: &View<'_>) -> bool {
    view.mesh().settings.gateway_api.east_west
}

/// The scope of a service; `None` if multi-network ambient mode is disabled, no object declares the
/// service, or only cluster-local ones of remote clusters do.
#[must_use]
pub fn reach(view: &View<'_>, key: &ServiceKey) -> Option<ServiceReach> {
    if are_joined(view) {
        *view.get(&ServiceReachOf(key.clone()))
    } else {
        None
    }
}

/// The addresses of a multi-cluster service in a network; empty for other services. The empty
/// network means all networks.
#[must_use]
pub fn addresses(view: &View<'_>, key: &ServiceKey, network: &NetworkId) -> Vec<IpAddr> {
    if reach(view, key) != Some(ServiceReach::Mesh) {
        return Vec::new();
    }
    let service = services::service(key, view);
    let all = service.iter().flat_map(|service| &service.addresses);
    let own =
        all.filter(|address| network.as_str().is_empty() || address.network == network.as_str());
    own.filter_map(|address| ip_of(&address.address)).collect()
}

/// The services of east-west gateways: multi-cluster services, and their waypoints.
pub(crate) fn multi_cluster_services(view: &View<'_>) -> BTreeSet<ServiceKey> {
    let namespaces: Vec<Namespace> = keys_by_namespace(view).keys().cloned().collect();
    let mut far = BTreeSet::new();
    for namespace in namespaces {
        far.extend(view.get(&MultiClusterServicesIn(namespace)).iter().cloned());
    }
    far
}

/// The multi-cluster Services of remote clusters with one key, by cluster.
pub(crate) fn remote_parts(view: &View<'_>, key: &ServiceKey) -> Arc<Vec<RemotePart>> {
    view.get(&RemotePartsOf(key.clone()))
}

/// The Service of a remote cluster, if it is multi-cluster; `None` without multi-network ambient
/// mode.
pub(crate) fn far_service<'a>(
    view: &'a View<'_>,
    cluster: &ClusterId,
    name: &NamespacedName,
) -> Option<&'a Arc<Object<Service>>> {
    if !are_joined(view) {
        return None;
    }
    let cluster_ref = ClusterRef::Remote(cluster.clone());
    let object = view.object_in::<Service>(&cluster_ref, name)?;
    let namespace = namespace_in_cluster(&cluster_ref, &name.namespace, view);
    let is_alias = matches!(object.spec.service_type, ServiceType::ExternalName(_));
    (!is_alias
        && is_multi_cluster(
            view,
            &object.meta.labels,
            namespace.map(|meta| &meta.labels),
        ))
    .then_some(object)
}

/// The metadata of a namespace of a cluster.
pub(crate) fn namespace_in_cluster<'a>(
    cluster_ref: &ClusterRef,
    name: &Namespace,
    view: &'a View<'_>,
) -> Option<&'a ObjectMeta> {
    let name = NamespacedName::new("", name.as_str());
    view.object_in::<NamespaceObject>(cluster_ref, &name)
        .map(|namespace| &namespace.meta)
}

/// The name of the Service that declares the service of this key in any cluster; `None` if another
/// kind declares it.
fn service_name(view: &View<'_>, key: &ServiceKey) -> Option<NamespacedName> {
    let Origin::Service(name) = origin(key, view)? else {
        return None;
    };
    let host = host_of(
        &name.name,
        &key.namespace,
        &view.mesh().settings.domain_suffix,
    );
    (host == key.hostname).then_some(name)
}

/// Whether mesh config makes Services with these labels multi-cluster; `namespace` has the labels
/// of their namespace.
fn is_multi_cluster(view: &View<'_>, service: &Labels, namespace: Option<&Labels>) -> bool {
    let selects = |selector: Option<&LabelSelector>, labels: &Labels| {
        selector.is_none_or(|one| one.selects(labels))
    };
    let mut scopes = view.mesh().config.service_scope_configs.iter();
    namespace.is_some_and(|namespace| {
        scopes.any(|one| {
            one.scope == ServiceScope::Global
                && selects(one.namespace_selector.as_ref(), namespace)
                && selects(one.services_selector.as_ref(), service)
        })
    })
}

impl Query for ServiceReachOf {
    type Value = Option<ServiceReach>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        if let Origin::ServiceEntry(_) = origin(&self.0, view)? {
            return Some(ServiceReach::Entry);
        }
        let name = service_name(view, &self.0)?;
        if let Some(own) = view.object::<Service>(&name) {
            let is_multi_cluster = is_multi_cluster(
                view,
                &own.meta.labels,
                view.namespace_labels(&self.0.namespace),
            );
            return Some(if is_multi_cluster {
                ServiceReach::Mesh
            } else {
                ServiceReach::Cluster
            });
        }
        (!remote_parts(view, &self.0).is_empty()).then_some(ServiceReach::Mesh)
    }
}

impl Query for RemotePartsOf {
    type Value = Vec<RemotePart>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(name) = service_name(view, &self.0) else {
            return Vec::new();
        };
        let clusters: Vec<ClusterId> = view.remote_clusters().cloned().collect();
        let part = |cluster: ClusterId| {
            let object = far_service(view, &cluster, &name)?.clone();
            Some(RemotePart {
                network: network_of(view, &cluster),
                object,
                cluster,
            })
        };
        clusters.into_iter().filter_map(part).collect()
    }
}

/// The network of a remote cluster; empty if unknown.
pub(crate) fn network_of(view: &View<'_>, cluster: &ClusterId) -> NetworkId {
    (*view.get(&NetworkOf(cluster.clone()))).clone()
}

impl Query for NetworkOf {
    type Value = NetworkId;

    fn compute(&self, view: &View<'_>) -> NetworkId {
        let system = &view.mesh().settings.system_namespace;
        let namespace = namespace_in_cluster(&ClusterRef::Remote(self.0.clone()), system, view);
        namespace
            .and_then(|meta| meta.labels.get(NETWORK_LABEL))
            .map(NetworkId::new)
            .unwrap_or_default()
    }
}

impl Query for MultiClusterServicesIn {
    type Value = BTreeSet<ServiceKey>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut far = BTreeSet::new();

        for hostname in bound::hosts_in(view, &self.0).iter() {
            let key = ServiceKey {
                namespace: self.0.clone(),
                hostname: hostname.clone(),
            };
            if reach(view, &key) != Some(ServiceReach::Mesh) {
                continue;
            }

            let binding = (!leads_to_waypoints(view, &key))
                .then(|| bound::binding(view, &key))
                .flatten();
            let hops = binding.iter().flat_map(|binding| binding.hops());
            let hops = hops.filter_map(|hop| hop.address.service(view));

            // A waypoint of a remote cluster has a service here if it is multi-cluster.
            far.extend(hops.filter(|hop| view.get(&FactsOf(hop.clone())).is_some()));
            far.insert(key);
        }

        far
    }
}
