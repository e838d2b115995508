//! Binding of services and workloads to waypoints: what waypoint proxies serve, and the waypoint to
//! which gateways send traffic of a service.
//!
//! A waypoint proxy also serves the services that are prepared for it (`navarch.io/prepare-waypoint`):
//! clients that learn of a binding before the waypoint does lose their connections.
//!
//! A waypoint proxy is identified by the hosts and addresses of the Services that select it, as in
//! Istio's `WaypointKeyForProxy`; it serves services and workloads that are bound to one of these
//! (`ServicesForWaypoint`, `WorkloadsForWaypoint`, `ServicesWithWaypoint`).

mod own;
mod sidecars;
mod workloads;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::names::{Hostname, Namespace, NetworkId};
use navarch_proto::istio::workload::GatewayAddress;
use navarch_proto::istio::workload::gateway_address::Destination;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

pub use sidecars::{SidecarPath, path_of_sidecars};
pub use workloads::{BoundWorkload, workloads_of_proxy};

use crate::waypoint::{MANAGED_LABEL, MANAGED_MESH};
use crate::wire::ip_of;
use crate::{networks, services};
use own::OwnAddresses;

/// The reference of services and workloads to a waypoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaypointAddress {
    /// By a host of a namespace.
    Host(ServiceKey),
    /// By a network and an address in that network, as in ztunnel's `GatewayAddress`.
    Ip(NetworkId, IpAddr),
}

/// A waypoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// A waypoint proxy serves what is bound to one of its own hosts and addresses, so both sides
    /// must be equal.
    pub address: WaypointAddress,
    /// Its HBONE port.
    pub port: u16,
}

/// The waypoints of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The waypoint to which clients send traffic of the service.
    pub waypoint: Hop,
    /// Waypoints with their weights, if there is a canary.
    pub weighted: Vec<(Hop, u32)>,
    /// Whether ingress gateways use it.
    pub at_ingress: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BindingOf(ServiceKey);

/// The keys of all services, by namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServiceKeys;

/// The hosts of the services of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HostsIn(Namespace);

/// The services of one namespace that waypoints serve, by waypoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BoundIn(Namespace);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServicesByWaypoint;

/// The services behind a waypoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServicesOf(WaypointAddress);

/// Whether the view's proxy is an east-west gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsBetweenNetworks;

type ByWaypoint = BTreeMap<WaypointAddress, Vec<ServiceKey>>;

impl WaypointAddress {
    /// From ztunnel's message; `None` if that has no address.
    fn of(address: &GatewayAddress) -> Option<Self> {
        Some(match address.destination.as_ref()? {
            Destination::Hostname(host) => {
                Self::Host(ServiceKey::new(&host.namespace, &host.hostname))
            }
            Destination::Address(address) => {
                Self::Ip(NetworkId::new(&address.network), ip_of(&address.address)?)
            }
        })
    }

    /// The service at the address; the first one if there are several.
    #[must_use]
    pub fn service(&self, view: &View<'_>) -> Option<ServiceKey> {
        match self {
            Self::Host(key) => Some(key.clone()),
            Self::Ip(network, address) => crate::members::service_key_at(*address, network, view),
        }
    }
}

impl Binding {
    /// All waypoints of the service, the canary included.
    pub(crate) fn hops(&self) -> impl Iterator<Item = &Hop> {
        let only = self.weighted.is_empty().then_some(&self.waypoint);
        only.into_iter()
            .chain(self.weighted.iter().map(|(hop, _)| hop))
    }
}

impl Hop {
    /// From ztunnel's message.
    fn of(address: &GatewayAddress) -> Option<Self> {
        Some(Self {
            address: WaypointAddress::of(address)?,
            port: u16::try_from(address.hbone_mtls_port).ok()?,
        })
    }
}

/// The waypoint of a service; `None` if it has none, or without ambient mode.
#[must_use]
pub fn binding(view: &View<'_>, service: &ServiceKey) -> Option<Arc<Binding>> {
    if !view.mesh().settings.ambient {
        return None;
    }
    (*view.get(&BindingOf(service.clone()))).clone()
}

/// Whether the view's proxy, which has the type of waypoints, is an east-west gateway of an ambient
/// mesh.
#[must_use]
pub fn joins_networks(view: &View<'_>) -> bool {
    view.mesh().settings.gateway_api.east_west
        && view.proxy().kind() == ProxyKind::Waypoint
        && *view.derived(&IsBetweenNetworks)
}

/// The services of the view's proxy, which is a waypoint, each once. For an east-west gateway all
/// multi-cluster services.
#[must_use]
pub fn services_of_proxy(view: &View<'_>) -> Vec<ServiceKey> {
    if !view.mesh().settings.ambient {
        return Vec::new();
    }
    if joins_networks(view) {
        return networks::multi_cluster_services(view).into_iter().collect();
    }
    let own = view.derived(&OwnAddresses);
    let mut services: Vec<ServiceKey> = own
        .iter()
        .flat_map(|address| (*view.get(&ServicesOf(address.clone()))).clone())
        .collect();
    services.sort_unstable();
    services.dedup();
    services
}

/// The hosts of all services, by namespace.
pub(crate) fn keys_by_namespace(view: &View<'_>) -> Arc<BTreeMap<Namespace, Vec<Hostname>>> {
    view.get(&ServiceKeys)
}

/// The hosts of the services of a namespace.
pub(crate) fn hosts_in(view: &View<'_>, namespace: &Namespace) -> Arc<Vec<Hostname>> {
    view.get(&HostsIn(namespace.clone()))
}

impl Query for IsBetweenNetworks {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let [_, between] = MANAGED_MESH;
        view.proxy()
            .labels()
            .get(MANAGED_LABEL)
            .is_some_and(|managed| **managed == *between)
    }
}

impl ProxyQuery for IsBetweenNetworks {}

impl Query for BindingOf {
    type Value = Option<Arc<Binding>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let service = services::service(&self.0, view)?;
        let weighted = service.weighted_waypoints.iter();
        Some(Arc::new(Binding {
            waypoint: Hop::of(service.waypoint.as_ref()?)?,
            weighted: weighted
                .filter_map(|one| Some((Hop::of(one.destination.as_ref()?)?, one.weight)))
                .collect(),
            at_ingress: service.ingress_use_waypoint
                || services::is_taken_at_ingress_here(&self.0, view),
        }))
    }
}

impl Query for ServiceKeys {
    type Value = BTreeMap<Namespace, Vec<Hostname>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut keys: Self::Value = BTreeMap::new();
        for service in view.all_services() {
            let hosts = keys.entry(service.key.namespace.clone()).or_default();
            if hosts.last() != Some(&service.key.hostname) {
                hosts.push(service.key.hostname.clone());
            }
        }
        keys
    }
}

impl Query for HostsIn {
    type Value = Vec<Hostname>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ServiceKeys)
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

impl Query for BoundIn {
    type Value = ByWaypoint;

    fn compute(&self, view: &View<'_>) -> ByWaypoint {
        let mut bound = ByWaypoint::new();

        for hostname in view.get(&HostsIn(self.0.clone())).iter() {
            let key = ServiceKey {
                namespace: self.0.clone(),
                hostname: hostname.clone(),
            };
            if leads_to_waypoints(view, &key) {
                continue;
            }

            let binding = view.get(&BindingOf(key.clone()));
            let hops = binding.iter().flat_map(|binding| binding.hops());
            let mut waypoints: Vec<WaypointAddress> = hops.map(|hop| hop.address.clone()).collect();
            let prepared = services::prepared_waypoint(&key, view);
            waypoints.extend(prepared.and_then(|address| WaypointAddress::of(&address)));
            waypoints.sort_unstable();
            waypoints.dedup();

            for waypoint in waypoints {
                bound.entry(waypoint).or_default().push(key.clone());
            }
        }

        bound
    }
}

/// Whether a service selects waypoints or east-west gateways, which have no waypoint themselves.
pub(crate) fn leads_to_waypoints(view: &View<'_>, key: &ServiceKey) -> bool {
    let managed = view
        .service(key)
        .and_then(|service| service.selector.get(MANAGED_LABEL));
    managed.is_some_and(|managed| MANAGED_MESH.contains(&&**managed))
}

impl Query for ServicesByWaypoint {
    type Value = ByWaypoint;

    fn compute(&self, view: &View<'_>) -> ByWaypoint {
        let mut all = ByWaypoint::new();
        for namespace in view.get(&ServiceKeys).keys() {
            for (waypoint, services) in view.get(&BoundIn(namespace.clone())).iter() {
                all.entry(waypoint.clone())
                    .or_default()
                    .extend(services.iter().cloned());
            }
        }
        all
    }
}

impl Query for ServicesOf {
    type Value = Vec<ServiceKey>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ServicesByWaypoint)
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}
