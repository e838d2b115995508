//! Waypoints, and the binding of services and workloads to them (Istio's
//! `serviceregistry/ambient/waypoints.go`).

mod attachment_error;

use std::sync::Arc;

use navarch_proto::istio::workload::{
    ApplicationTunnel, GatewayAddress, WeightedWaypoint, application_tunnel,
};

use super::mesh::MeshFacts;
use super::networks::{namespace_in_cluster, network_of};
use super::wire::{gateway_by_host, gateway_by_ip};
use navarch_api::gateway_api::{GatewayClass, KubernetesGateway, Listener};
use navarch_api::kubernetes::Pod;
use navarch_api::mesh::{LabelSelector, Visibility};
use navarch_api::names::{Namespace, ServiceAccount};
use navarch_api::object::{Kind, NamespacedName, Object, ObjectMeta};
use navarch_api::text_map::TextMap;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::address_index::LabelKey;
use navarch_registry::model::Labels;

pub(super) use attachment_error::AttachmentError;

/// The label of pods that run a Gateway.
pub(super) const GATEWAY_NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
/// The label of objects that a controller created for a Gateway.
pub(super) const MANAGED_LABEL: &str = "gateway.istio.io/managed";
/// Its values for waypoints and east-west gateways, which have no waypoint themselves.
pub(super) const MANAGED_MESH: [&str; 2] =
    ["istio.io-mesh-controller", "istio.io-eastwest-controller"];
/// The label that names the waypoint.
const USE_LABEL: &str = "istio.io/use-waypoint";
/// The label that names the waypoint's namespace.
const USE_NAMESPACE_LABEL: &str = "istio.io/use-waypoint-namespace";
/// The label of services and namespaces that names a waypoint of their namespace, which then serves
/// the services before clients are sent to it.
const PREPARE_LABEL: &str = "navarch.io/prepare-waypoint";
/// The label that names a canary waypoint, which gets a share of the connections.
const CANARY_LABEL: &str = "istio.io/use-waypoint-canary";
/// The label that names the canary's namespace.
const CANARY_NAMESPACE_LABEL: &str = "istio.io/use-waypoint-canary-namespace";
/// The annotation with the canary's share in percent.
const CANARY_WEIGHT_ANNOTATION: &str = "istio.io/use-waypoint-canary-weight";
/// The reserved waypoint name for no waypoint.
const NO_WAYPOINT: &str = "none";
/// The label of Gateways and classes with the traffic type of a waypoint.
const FOR_LABEL: &str = "istio.io/waypoint-for";
/// The annotation of Gateways and classes for how ztunnel connects to a waypoint.
const BINDING_ANNOTATION: &str = "ambient.istio.io/waypoint-inbound-binding";
/// The protocol of listeners behind ztunnel.
const PROXY_PROTOCOL: &str = "istio.io/PROXY";
const HBONE_PORT: u16 = 15008;

/// A waypoint: a Gateway with an address.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waypoint {
    pub(super) name: NamespacedName,
    /// The cluster of the Gateway, and of the objects bound to it.
    cluster_ref: ClusterRef,
    /// Its address, if known.
    pub(super) address: Option<GatewayAddress>,
    /// How ztunnel forwards connections to it, if not the default.
    pub(super) binding: Option<ApplicationTunnel>,
    /// Its traffic type: `service`, `workload`, `all`, or an unknown one that matches nothing.
    traffic: Arc<str>,
    /// The namespaces whose objects may use it.
    allowed: Allowed,
    /// The ServiceAccounts of its pods, sorted, if waypoints are allowed implicitly.
    pub(super) accounts: Vec<ServiceAccount>,
}

/// The namespaces whose objects may use a waypoint.
#[derive(Clone, Debug, PartialEq)]
enum Allowed {
    /// Only the namespace of the Gateway.
    Same,
    All,
    /// Namespaces with matching labels.
    Selected(LabelSelector),
    /// None, since the selector is missing.
    Nobody,
}

/// The meaning of the label `istio.io/use-waypoint` and its namespace label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WaypointLabel {
    /// The labels are absent.
    Nothing,
    /// The value is `none`.
    None,
    Named(NamespacedName),
}

/// The waypoint of this name in a cluster; `None` if the Gateway does not exist, or has no address
/// yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaypointOf(pub(super) ClusterRef, pub(super) NamespacedName);

/// The waypoint of an object, if it has one; if one is referenced but not used, the reason.
pub(super) type Before = Result<Option<Arc<Waypoint>>, AttachmentError>;

/// The default waypoint of a namespace of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WaypointOfNamespace(ClusterRef, Namespace);

impl Waypoint {
    /// Whether objects of a namespace may use it.
    pub(super) fn admits(&self, namespace: &Namespace, view: &View<'_>) -> bool {
        match &self.allowed {
            Allowed::All => true,
            Allowed::Same => self.name.namespace == *namespace,
            Allowed::Selected(selector) => {
                let labels = labels_of_namespace(&self.cluster_ref, namespace, view);
                selector.selects(labels.unwrap_or(&Labels::default()))
            }
            Allowed::Nobody => false,
        }
    }

    fn is_for_services(&self) -> bool {
        matches!(&*self.traffic, "service" | "all")
    }

    pub(super) fn is_for_workloads(&self) -> bool {
        matches!(&*self.traffic, "workload" | "all")
    }
}

impl Query for WaypointOf {
    type Value = Option<Arc<Waypoint>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Self(cluster_ref, name) = self;
        let gateway = view.object_in::<KubernetesGateway>(cluster_ref, name)?;
        if gateway.spec.status.addresses.is_empty() {
            return None;
        }

        let mesh = view.get(&MeshFacts);
        let class =
            view.object::<GatewayClass>(&NamespacedName::new("", &gateway.spec.gateway_class_name));
        let of_either =
            |gateway: Option<&Arc<str>>, class: Option<&Arc<str>>| gateway.or(class).cloned();
        let traffic = of_either(
            gateway.meta.labels.get(FOR_LABEL),
            class.and_then(|class| class.meta.labels.get(FOR_LABEL)),
        );

        let binding = of_either(
            gateway.meta.annotations.get(BINDING_ANNOTATION),
            class.and_then(|class| class.meta.annotations.get(BINDING_ANNOTATION)),
        );
        let binding = binding.and_then(|text| parse_binding(&text));

        Some(Arc::new(Waypoint {
            name: name.clone(),
            cluster_ref: cluster_ref.clone(),
            address: address(cluster_ref, gateway, view),
            allowed: allowed(&gateway.spec.listeners, binding.as_ref()),
            binding,
            traffic: traffic.unwrap_or_else(|| Arc::from("service")),
            accounts: if mesh.auto_allow_waypoints {
                accounts(cluster_ref, name, view)
            } else {
                Vec::new()
            },
        }))
    }
}

/// The address of a Gateway: its host, since addresses are reused, else its first address.
fn address(
    cluster_ref: &ClusterRef,
    gateway: &Object<KubernetesGateway>,
    view: &View<'_>,
) -> Option<GatewayAddress> {
    let addresses = &gateway.spec.status.addresses;
    if let Some(host) = addresses.iter().find(|address| address.kind == "Hostname") {
        return Some(gateway_by_host(
            &gateway.meta.key.namespace,
            &host.value,
            HBONE_PORT,
        ));
    }
    let mut ips = addresses
        .iter()
        .filter(|address| address.kind == "IPAddress");
    let ip = ips.find_map(|address| address.value.parse().ok())?;
    let network = match cluster_ref {
        ClusterRef::Remote(cluster) => network_of(view, cluster),
        ClusterRef::Config | ClusterRef::Unknown => view.get(&MeshFacts).network.clone(),
    };
    Some(gateway_by_ip(ip, &network, HBONE_PORT))
}

/// Reads `protocol` or `protocol/port`.
fn parse_binding(text: &str) -> Option<ApplicationTunnel> {
    let (protocol, port) = text
        .split_once('/')
        .map_or((text, None), |(protocol, port)| (protocol, Some(port)));
    if port.is_some_and(|port| port.contains('/')) {
        return None;
    }
    let protocol = match protocol {
        "NONE" => application_tunnel::Protocol::None,
        "PROXY" => application_tunnel::Protocol::Proxy,
        _ => return None,
    };
    let port = port.and_then(|port| port.parse().ok()).unwrap_or_default();
    Some(ApplicationTunnel {
        protocol: protocol.into(),
        port,
    })
}

/// The namespaces whose objects may use a waypoint, from `allowedRoutes` of the listener for
/// ztunnel.
fn allowed(listeners: &[Listener], binding: Option<&ApplicationTunnel>) -> Allowed {
    let bound = binding.and_then(|binding| {
        let port = i32::try_from(binding.port).ok().filter(|port| *port != 0);
        let is_proxy = binding.protocol() == application_tunnel::Protocol::Proxy;
        listeners.iter().find(|listener| match port {
            Some(port) => listener.port == port,
            None => is_proxy && listener.protocol == PROXY_PROTOCOL,
        })
    });

    let usual = |listener: &&Listener| {
        listener.protocol == "HBONE" && listener.port == i32::from(HBONE_PORT)
    };
    let Some(listener) = bound.or_else(|| listeners.iter().find(usual)) else {
        return Allowed::Same;
    };

    let namespaces = &listener.allowed_routes.namespaces;
    match (namespaces.from.as_str(), &namespaces.selector) {
        ("All", _) => Allowed::All,
        ("Selector", Some(selector)) => Allowed::Selected(selector.clone()),
        ("Selector", None) => Allowed::Nobody,
        _ => Allowed::Same,
    }
}

/// The ServiceAccounts of the pods of a Gateway, one for each pod.
fn accounts(
    cluster_ref: &ClusterRef,
    gateway: &NamespacedName,
    view: &View<'_>,
) -> Vec<ServiceAccount> {
    let label = LabelKey::of_pods(&gateway.namespace, GATEWAY_NAME_LABEL, &gateway.name);
    let pods = view
        .objects_with_in(cluster_ref, label)
        .filter(|object| object.kind == Kind::Pod);
    let mut accounts: Vec<ServiceAccount> = pods
        .filter_map(|object| view.object_in::<Pod>(cluster_ref, &object.name))
        .filter(|pod| pod.meta.key.namespace == gateway.namespace)
        .filter(|pod| {
            pod.meta
                .labels
                .get(GATEWAY_NAME_LABEL)
                .is_some_and(|name| *name == gateway.name)
        })
        .map(|pod| pod.spec.service_account.clone())
        .collect();
    accounts.sort_unstable();
    accounts
}

/// Parses the labels; a waypoint without a namespace is in `namespace`.
fn parse_labels(labels: &Labels, namespace: &Namespace) -> WaypointLabel {
    match labels.get(USE_LABEL) {
        None => WaypointLabel::Nothing,
        Some(name) if **name == *NO_WAYPOINT => WaypointLabel::None,
        Some(name) => {
            let namespace = labels
                .get(USE_NAMESPACE_LABEL)
                .map_or_else(|| namespace.clone(), Namespace::new);
            WaypointLabel::Named(NamespacedName::of(namespace, name.clone()))
        }
    }
}

fn labels_of_namespace<'a>(
    cluster_ref: &ClusterRef,
    namespace: &Namespace,
    view: &'a View<'_>,
) -> Option<&'a Labels> {
    match cluster_ref {
        ClusterRef::Config => view.namespace_labels(namespace),
        ClusterRef::Remote(_) | ClusterRef::Unknown => {
            namespace_in_cluster(cluster_ref, namespace, view).map(|meta| &meta.labels)
        }
    }
}

/// The waypoint of this name, if objects of a namespace may use it.
fn find(
    cluster_ref: &ClusterRef,
    name: &NamespacedName,
    namespace: &Namespace,
    view: &View<'_>,
) -> Result<Arc<Waypoint>, AttachmentError> {
    let waypoint = (*view.get(&WaypointOf(cluster_ref.clone(), name.clone()))).clone();
    let waypoint = waypoint.ok_or_else(|| AttachmentError::NotReady(name.clone()))?;
    if waypoint.admits(namespace, view) {
        Ok(waypoint)
    } else {
        Err(AttachmentError::NotAdmitted(name.clone()))
    }
}

impl Query for WaypointOfNamespace {
    type Value = Before;

    fn compute(&self, view: &View<'_>) -> Before {
        let Self(cluster_ref, namespace) = self;
        match labels_of_namespace(cluster_ref, namespace, view)
            .map(|labels| parse_labels(labels, namespace))
        {
            Some(WaypointLabel::Named(name)) => find(cluster_ref, &name, namespace, view).map(Some),
            Some(WaypointLabel::Nothing | WaypointLabel::None) | None => Ok(None),
        }
    }
}

/// The waypoint that an object or its namespace references. One that does not exist, or does not
/// admit the object, is not used, regardless of the namespace.
fn of_target(
    cluster_ref: &ClusterRef,
    labels: &Labels,
    namespace: &Namespace,
    view: &View<'_>,
) -> Before {
    match parse_labels(labels, namespace) {
        WaypointLabel::None => Ok(None),
        WaypointLabel::Named(name) => find(cluster_ref, &name, namespace, view).map(Some),
        WaypointLabel::Nothing => {
            (*view.get(&WaypointOfNamespace(cluster_ref.clone(), namespace.clone()))).clone()
        }
    }
}

/// The waypoint of a service of a cluster; `None` if it has none or must not use the referenced
/// one.
pub(super) fn of_service(
    cluster_ref: &ClusterRef,
    meta: &ObjectMeta,
    visibility: Option<Visibility>,
    view: &View<'_>,
) -> Option<Arc<Waypoint>> {
    before_service(cluster_ref, meta, visibility, view)
        .ok()
        .flatten()
}

/// Whether these are the labels of an object that a controller created for a waypoint or an
/// east-west gateway: its Service has no waypoint, whatever its namespace references.
#[must_use]
pub fn is_of_mesh_gateway(labels: &TextMap) -> bool {
    labels
        .get(MANAGED_LABEL)
        .is_some_and(|managed| MANAGED_MESH.contains(&&**managed))
}

/// The waypoint of a service. A ServiceEntry that is visible only in its namespace has no waypoint
/// elsewhere.
pub(super) fn before_service(
    cluster_ref: &ClusterRef,
    meta: &ObjectMeta,
    visibility: Option<Visibility>,
    view: &View<'_>,
) -> Before {
    if is_of_mesh_gateway(&meta.labels) {
        return Ok(None);
    }
    let namespace = &meta.key.namespace;
    let Some(waypoint) = of_target(cluster_ref, &meta.labels, namespace, view)? else {
        return Ok(None);
    };
    if !waypoint.is_for_services() {
        return Err(AttachmentError::Traffic(waypoint.name.clone(), "service"));
    }
    if visibility == Some(Visibility::Namespace) && waypoint.name.namespace != *namespace {
        return Err(AttachmentError::OtherNamespace(waypoint.name.clone()));
    }
    Ok(Some(waypoint))
}

/// The waypoint that serves a service without being its waypoint, so that it has the configuration
/// when clients are sent to it. It is always one of the service's namespace, so that ServiceEntries
/// which only their namespace sees need no check. The label of the namespace does not apply to
/// services that name their waypoint, or `none`, themselves.
pub(super) fn prepared_for(cluster_ref: &ClusterRef, meta: &ObjectMeta, view: &View<'_>) -> Before {
    if is_of_mesh_gateway(&meta.labels) {
        return Ok(None);
    }
    let namespace = &meta.key.namespace;
    let of_namespace = || {
        let inherits = !meta.labels.contains_key(USE_LABEL);
        let labels = labels_of_namespace(cluster_ref, namespace, view).filter(|_| inherits)?;
        labels.get(PREPARE_LABEL)
    };
    let Some(name) = meta.labels.get(PREPARE_LABEL).or_else(of_namespace) else {
        return Ok(None);
    };

    let name = NamespacedName::of(namespace.clone(), name.clone());
    let waypoint = find(cluster_ref, &name, namespace, view)?;
    if waypoint.is_for_services() {
        Ok(Some(waypoint))
    } else {
        Err(AttachmentError::Traffic(name, "service"))
    }
}

/// How a workload is reached: by a waypoint, or by an application tunnel if it is a waypoint
/// itself.
pub(super) struct WorkloadBinding {
    pub(super) waypoint: Option<Arc<Waypoint>>,
    /// How ztunnel forwards connections to it.
    pub(super) tunnel: Option<ApplicationTunnel>,
}

/// How a workload of a cluster with these labels is reached.
pub(super) fn of_workload(
    cluster_ref: &ClusterRef,
    labels: &Labels,
    namespace: &Namespace,
    view: &View<'_>,
) -> WorkloadBinding {
    if let Some(waypoint) = instance_of(cluster_ref, labels, namespace, view) {
        return WorkloadBinding {
            waypoint: None,
            tunnel: waypoint.binding,
        };
    }
    let waypoint = before_workload(cluster_ref, labels, namespace, view)
        .ok()
        .flatten();
    WorkloadBinding {
        waypoint,
        tunnel: None,
    }
}

/// The waypoint of a workload that is not a waypoint. The namespace's waypoint for services does
/// not apply to workloads.
fn before_workload(
    cluster_ref: &ClusterRef,
    labels: &Labels,
    namespace: &Namespace,
    view: &View<'_>,
) -> Before {
    match of_target(cluster_ref, labels, namespace, view)? {
        Some(waypoint) if waypoint.is_for_workloads() => Ok(Some(waypoint)),
        Some(waypoint) if labels.contains_key(USE_LABEL) => {
            Err(AttachmentError::Traffic(waypoint.name.clone(), "workload"))
        }
        Some(_) | None => Ok(None),
    }
}

/// The waypoint of a WorkloadEntry of the configuration cluster.
pub(super) fn before_entry(labels: &Labels, namespace: &Namespace, view: &View<'_>) -> Before {
    let cluster_ref = &ClusterRef::Config;
    if instance_of(cluster_ref, labels, namespace, view).is_some() {
        Ok(None)
    } else {
        before_workload(cluster_ref, labels, namespace, view)
    }
}

/// The waypoint of which a workload with these labels is an instance.
fn instance_of(
    cluster_ref: &ClusterRef,
    labels: &Labels,
    namespace: &Namespace,
    view: &View<'_>,
) -> Option<Arc<Waypoint>> {
    let gateway = labels
        .get(GATEWAY_NAME_LABEL)
        .filter(|name| !name.is_empty())?;
    (*view.get(&WaypointOf(
        cluster_ref.clone(),
        NamespacedName::of(namespace.clone(), gateway.clone()),
    )))
    .clone()
}

/// The waypoint and the canary of a service with their weights; empty without a canary. If the
/// canary must not be used, the waypoint gets the full weight.
pub(super) fn weighted(
    primary: &Waypoint,
    meta: &ObjectMeta,
    view: &View<'_>,
) -> Result<Vec<WeightedWaypoint>, AttachmentError> {
    let namespace = &meta.key.namespace;
    let names_own = matches!(
        parse_labels(&meta.labels, namespace),
        WaypointLabel::Named(_)
    );
    let cluster_ref = &primary.cluster_ref;
    let inherited = (!names_own)
        .then(|| namespace_in_cluster(cluster_ref, namespace, view))
        .flatten();
    let labels = match inherited.filter(|_| !meta.labels.contains_key(CANARY_LABEL)) {
        Some(inherited) if inherited.labels.contains_key(CANARY_LABEL) => &inherited.labels,
        Some(_) | None => &meta.labels,
    };
    let Some(name) = labels
        .get(CANARY_LABEL)
        .filter(|name| !matches!(&***name, "" | NO_WAYPOINT))
    else {
        return Ok(Vec::new());
    };

    let of = labels
        .get(CANARY_NAMESPACE_LABEL)
        .map_or_else(|| namespace.clone(), Namespace::new);
    let name = NamespacedName::of(of, name.clone());
    if name == primary.name {
        return Err(AttachmentError::CanaryIsPrimary(name));
    }

    let weight = meta.annotations.get(CANARY_WEIGHT_ANNOTATION);
    let weight = weight
        .or_else(|| inherited.and_then(|meta| meta.annotations.get(CANARY_WEIGHT_ANNOTATION)));
    let weight = weight
        .map_or(Some(0), |text| text.parse::<u32>().ok())
        .filter(|weight| *weight <= 100);
    let Some(weight) = weight else {
        return Err(AttachmentError::CanaryWeight(name));
    };

    let second = find(cluster_ref, &name, namespace, view)?;
    if !second.is_for_services() {
        return Err(AttachmentError::Traffic(name, "service"));
    }

    let one = |waypoint: &Waypoint, weight| WeightedWaypoint {
        destination: waypoint.address.clone(),
        weight,
    };
    Ok(vec![one(primary, 100 - weight), one(&second, weight)])
}
