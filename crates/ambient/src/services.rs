//! Services for ztunnel (Istio's `serviceregistry/ambient/services.go`).

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_proto::istio::workload::load_balancing::{HealthPolicy, Mode, Scope};
use navarch_proto::istio::workload::{
    AppProtocol, GatewayAddress, IpFamilies, LoadBalancing, NetworkAddress, Port, Service, service,
};

use super::mesh::{Mesh, MeshFacts};
use super::networks::{self, ServiceReach, namespace_in_cluster};
use super::service_facts::{Origin, origin, visibility};
use super::split_horizon;
use super::waypoint::{self, Before, Waypoint};
use super::wire::{network_address, network_range};
use navarch_api::istio::{Resolution, ServiceEntry};
use navarch_api::kubernetes::{
    IpFamilies as Families, Service as Declared, TargetPort, TrafficPolicy,
};
use navarch_api::mesh::Visibility;
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{Object, ObjectMeta};
use navarch_base::cidr::Cidr;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{ServiceKey, TrafficDistribution};
use navarch_registry::protocol::Protocol;
use navarch_registry::{protocol_of_port, traffic_distribution};

/// The label of services and namespaces that sends ingress gateways through the waypoint.
const INGRESS_LABEL: &str = "istio.io/ingress-use-waypoint";
/// The label of services and namespaces that sends sidecars through the waypoint.
const SIDECAR_LABEL: &str = "navarch.io/sidecar-use-waypoint";
/// The label that disables address allocation for a ServiceEntry.
const AUTO_ALLOCATE_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";

/// The service of this namespace and host, if any.
pub(super) fn service(key: &ServiceKey, view: &View<'_>) -> Option<Service> {
    let name = match origin(key, view)? {
        Origin::Service(name) => name,
        Origin::ServiceEntry(name) => {
            return of_entry(key, view.object::<ServiceEntry>(&name)?, view);
        }
    };

    let is_far = networks::reach(view, key) == Some(ServiceReach::Mesh);
    let mut service = match view.object::<Declared>(&name) {
        Some(object) => of_kubernetes(key, &ClusterRef::Config, object, view),
        // As in Istio, the service of the first cluster is used, with its waypoint.
        None if is_far => {
            let parts = networks::remote_parts(view, key);
            let first = parts.first()?;
            let mut service = of_kubernetes(
                key,
                &ClusterRef::Remote(first.cluster.clone()),
                &first.object,
                view,
            );
            // The addresses of all clusters are added below, with their networks.
            service.addresses.clear();
            service
        }
        None => return None,
    };

    if is_far {
        split_horizon::merge(view, key, &mut service);
    }

    Some(service)
}

fn of_kubernetes(
    key: &ServiceKey,
    cluster_ref: &ClusterRef,
    object: &Object<Declared>,
    view: &View<'_>,
) -> Service {
    let meta = &object.meta;
    let spec = &object.spec;
    let mesh = view.get(&MeshFacts);
    let waypoint = waypoint::of_service(cluster_ref, meta, None, view);
    let namespace = namespace_in_cluster(cluster_ref, &meta.key.namespace, view);
    let port = |port: &navarch_api::kubernetes::ServicePort| Port {
        service_port: u32::from(port.port),
        target_port: match port.target {
            TargetPort::Number(number) => u32::from(number),
            TargetPort::Name(_) => 0,
        },
        app_protocol: app_protocol(protocol_of_port(port)).into(),
    };

    let mut load_balancing = match spec.internal_traffic_policy {
        TrafficPolicy::Local => Some(LoadBalancing {
            routing_preference: vec![Scope::Node.into()],
            mode: Mode::Strict.into(),
            ..LoadBalancing::default()
        }),
        TrafficPolicy::Cluster => preference(traffic_distribution(
            spec.traffic_distribution,
            meta,
            namespace,
        )),
    };

    if spec.publish_not_ready_addresses {
        load_balancing.get_or_insert_default().health_policy = HealthPolicy::AllowAll.into();
    }

    let families = match spec.ip_families {
        Families::Unsaid => IpFamilies::Automatic,
        Families::V4 => IpFamilies::Ipv4Only,
        Families::V6 => IpFamilies::Ipv6Only,
        Families::Dual => IpFamilies::Dual,
    };

    let addresses = spec.cluster_ips.addresses().iter();
    Service {
        name: meta.key.name.to_string(),
        addresses: addresses
            .map(|address| network_address(*address, &mesh.network))
            .collect(),
        ports: spec.ports.iter().map(port).collect(),
        load_balancing,
        ip_families: families.into(),
        // No other object can own the host.
        canonical: true,
        ..bound(key, waypoint.as_ref(), meta, namespace, view)
    }
}

/// One host of a ServiceEntry; `None` if an address is invalid.
fn of_entry(key: &ServiceKey, object: &Object<ServiceEntry>, view: &View<'_>) -> Option<Service> {
    let meta = &object.meta;
    let spec = &object.spec;
    let mesh = view.get(&MeshFacts);
    let namespace = namespace(&meta.key.namespace, view);
    let visibility = visibility(&meta.key.namespace, view);
    let waypoint = waypoint::of_service(&ClusterRef::Config, meta, Some(visibility), view);
    let port = |port: &navarch_api::istio::ServicePort| Port {
        service_port: port.number,
        target_port: if port.target_port == 0 {
            port.number
        } else {
            port.target_port
        },
        app_protocol: app_protocol(Protocol::parse(&port.protocol)).into(),
    };

    let load_balancing = match spec.resolution {
        Resolution::None => Some(LoadBalancing {
            mode: Mode::Passthrough.into(),
            health_policy: HealthPolicy::AllowAll.into(),
            ..LoadBalancing::default()
        }),
        Resolution::Static
        | Resolution::Dns
        | Resolution::DnsRoundRobin
        | Resolution::DynamicDns => preference(traffic_distribution(None, meta, namespace)),
    };

    Some(Service {
        name: meta.key.name.to_string(),
        addresses: addresses(&key.hostname, object, &mesh, view)?,
        ports: spec.ports.iter().map(port).collect(),
        subject_alt_names: spec.subject_alt_names.clone(),
        load_balancing,
        canonical: view.get(&CanonicalNamespace(key.hostname.clone())).as_ref()
            == &Some(key.namespace.clone()),
        visibility: match visibility {
            Visibility::Namespace => service::Visibility::Namespace,
            Visibility::Unspecified | Visibility::Public | Visibility::None => {
                service::Visibility::Public
            }
        }
        .into(),
        ..bound(key, waypoint.as_ref(), meta, namespace, view)
    })
}

/// The common part of both kinds of services: names and waypoints.
fn bound(
    key: &ServiceKey,
    waypoint: Option<&Arc<Waypoint>>,
    meta: &ObjectMeta,
    namespace: Option<&ObjectMeta>,
    view: &View<'_>,
) -> Service {
    Service {
        namespace: key.namespace.to_string(),
        hostname: key.hostname.to_string(),
        waypoint: waypoint.and_then(|waypoint| waypoint.address.clone()),
        weighted_waypoints: waypoint
            .and_then(|waypoint| waypoint::weighted(waypoint, meta, view).ok())
            .unwrap_or_default(),
        ingress_use_waypoint: waypoint.is_some() && uses_waypoint_at_ingress(meta, namespace),
        ..Service::default()
    }
}

/// The metadata of a namespace.
pub(super) fn namespace<'a>(name: &Namespace, view: &'a View<'_>) -> Option<&'a ObjectMeta> {
    namespace_in_cluster(&ClusterRef::Config, name, view)
}

/// Whether ingress gateways use the waypoint of a service.
fn uses_waypoint_at_ingress(meta: &ObjectMeta, namespace: Option<&ObjectMeta>) -> bool {
    ingress_use_waypoint(meta, namespace).unwrap_or_default()
}

/// Whether ingress gateways use the waypoint of a service of remote clusters because of the label
/// of its namespace in the configuration cluster: as in Istio, it applies if neither the Service
/// nor the namespace of its cluster has the label.
pub(super) fn is_taken_at_ingress_here(key: &ServiceKey, view: &View<'_>) -> bool {
    let has_label_here =
        namespace(&key.namespace, view).is_some_and(|here| uses_waypoint_at_ingress(here, None));
    let parts = if has_label_here {
        networks::remote_parts(view, key)
    } else {
        Arc::default()
    };
    parts.first().is_some_and(|first| {
        let meta = &first.object.meta;
        let there = namespace_in_cluster(
            &ClusterRef::Remote(first.cluster.clone()),
            &key.namespace,
            view,
        );
        view.object::<Declared>(&meta.key).is_none() && ingress_use_waypoint(meta, there).is_none()
    })
}

/// The value of the label of a service, or of its namespace, for whether ingress gateways use its
/// waypoint.
pub(super) fn ingress_use_waypoint(
    meta: &ObjectMeta,
    namespace: Option<&ObjectMeta>,
) -> Option<bool> {
    switch(INGRESS_LABEL, meta, namespace)
}

/// The value of a label of a service, or of its namespace.
fn switch(label: &str, meta: &ObjectMeta, namespace: Option<&ObjectMeta>) -> Option<bool> {
    let value = meta
        .labels
        .get(label)
        .or_else(|| namespace.and_then(|meta| meta.labels.get(label)))?;
    Some(matches!(
        &**value,
        "1" | "t" | "T" | "true" | "TRUE" | "True"
    ))
}

/// The waypoint of a service that requests that sidecars use it; `None` if it does not request it.
pub(super) fn waypoint_for_sidecars(key: &ServiceKey, view: &View<'_>) -> Option<Before> {
    let Declaration {
        cluster_ref,
        meta,
        visibility,
    } = Declaration::of(key, view)?;
    let namespace = namespace_in_cluster(&cluster_ref, &meta.key.namespace, view);
    switch(SIDECAR_LABEL, &meta, namespace)
        .unwrap_or_default()
        .then(|| waypoint::before_service(&cluster_ref, &meta, visibility, view))
}

/// The address of the waypoint that serves a service without being its waypoint.
pub(super) fn prepared_waypoint(key: &ServiceKey, view: &View<'_>) -> Option<GatewayAddress> {
    let Declaration {
        cluster_ref, meta, ..
    } = Declaration::of(key, view)?;
    let waypoint = waypoint::prepared_for(&cluster_ref, &meta, view).ok()??;
    waypoint.address.clone()
}

/// The object that declares a service, and decides about its waypoint.
struct Declaration<'a> {
    cluster_ref: ClusterRef,
    meta: Cow<'a, ObjectMeta>,
    /// That of a ServiceEntry; `None` for Services.
    visibility: Option<Visibility>,
}

impl<'a> Declaration<'a> {
    fn of(key: &ServiceKey, view: &'a View<'_>) -> Option<Self> {
        let name = match origin(key, view)? {
            Origin::Service(name) => name,
            Origin::ServiceEntry(name) => {
                let meta = &view.object::<ServiceEntry>(&name)?.meta;
                return Some(Self {
                    cluster_ref: ClusterRef::Config,
                    meta: Cow::Borrowed(meta),
                    visibility: Some(visibility(&meta.key.namespace, view)),
                });
            }
        };

        if let Some(object) = view.object::<Declared>(&name) {
            return Some(Self {
                cluster_ref: ClusterRef::Config,
                meta: Cow::Borrowed(&object.meta),
                visibility: None,
            });
        }
        if networks::reach(view, key) != Some(ServiceReach::Mesh) {
            return None;
        }

        // As for all clients, the waypoint of the first cluster with the service.
        let parts = networks::remote_parts(view, key);
        let first = parts.first()?;
        Some(Self {
            cluster_ref: ClusterRef::Remote(first.cluster.clone()),
            meta: Cow::Owned(first.object.meta.clone()),
            visibility: None,
        })
    }
}

/// The addresses of a host of a ServiceEntry: those in its spec, else those allocated to the host.
/// `None` if one is invalid.
fn addresses(
    host: &Hostname,
    entry: &Object<ServiceEntry>,
    mesh: &Mesh,
    view: &View<'_>,
) -> Option<Vec<NetworkAddress>> {
    let spec = &entry.spec;
    if !spec.addresses.is_empty() {
        let range = |text: &String| {
            Cidr::parse_range_or_address(text).map(|range| network_range(range, &mesh.network))
        };
        return spec.addresses.iter().map(range).collect();
    }

    let label = entry.meta.labels.get(AUTO_ALLOCATE_LABEL);
    let is_allowed = view.mesh().settings.ip_autoallocate
        && spec.resolution != Resolution::None
        && !label.is_some_and(|label| label.eq_ignore_ascii_case("false"))
        && (!host.is_wildcard() || spec.resolution == Resolution::DynamicDns);
    let own = spec
        .allocated
        .iter()
        .filter(|address| is_allowed && address.host == *host.as_str());
    let ips = own.filter_map(|address| address.value.parse::<IpAddr>().ok());

    Some(
        ips.map(|address| network_address(address, &mesh.network))
            .collect(),
    )
}

/// The namespace whose ServiceEntry serves a host for clients of other namespaces; `None` if a
/// Service does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CanonicalNamespace(Hostname);

impl Query for CanonicalNamespace {
    type Value = Option<Namespace>;

    fn compute(&self, view: &View<'_>) -> Option<Namespace> {
        let mut oldest: Option<(_, Namespace)> = None;

        for namespace in view.namespaces_of_host(&self.0).unwrap_or_default() {
            let key = ServiceKey {
                namespace: namespace.clone(),
                hostname: self.0.clone(),
            };
            match origin(&key, view) {
                Some(Origin::Service(_)) => return None,
                Some(Origin::ServiceEntry(name))
                    if visibility(namespace, view) != Visibility::Namespace =>
                {
                    let created = view
                        .object::<ServiceEntry>(&name)
                        .and_then(|entry| entry.meta.created);
                    if oldest.as_ref().is_none_or(|(known, _)| created < *known) {
                        oldest = Some((created, namespace.clone()));
                    }
                }
                Some(Origin::ServiceEntry(_)) | None => {}
            }
        }

        oldest.map(|(_, namespace)| namespace)
    }
}

/// The endpoint preference.
fn preference(distribution: TrafficDistribution) -> Option<LoadBalancing> {
    let scopes: &[Scope] = match distribution {
        TrafficDistribution::Any => return None,
        TrafficDistribution::PreferSameZone => &[Scope::Network, Scope::Region, Scope::Zone],
        TrafficDistribution::PreferSameNode => &[
            Scope::Network,
            Scope::Region,
            Scope::Zone,
            Scope::Subzone,
            Scope::Node,
        ],
    };
    let routing_preference = scopes.iter().map(|scope| (*scope).into()).collect();
    Some(LoadBalancing {
        routing_preference,
        mode: Mode::Failover.into(),
        ..LoadBalancing::default()
    })
}

/// The protocol of a port, as far as ztunnel distinguishes them.
fn app_protocol(protocol: Protocol) -> AppProtocol {
    match protocol {
        Protocol::Http => AppProtocol::Http11,
        Protocol::Http2 => AppProtocol::Http2,
        Protocol::Grpc => AppProtocol::Grpc,
        Protocol::Tls | Protocol::Https => AppProtocol::Tls,
        Protocol::Tcp => AppProtocol::Tcp,
        Protocol::GrpcWeb
        | Protocol::HttpProxy
        | Protocol::Udp
        | Protocol::Mongo
        | Protocol::Redis
        | Protocol::MySql
        | Protocol::Unsupported => AppProtocol::Unknown,
    }
}
