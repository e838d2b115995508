//! Waypoints, proxies for services and workloads of ambient mode: which services they serve, and
//! the names of their listeners and clusters.
//!
//! The listeners are built in `listeners::waypoint` and `listeners::tunnels`, the clusters in
//! `clusters::inbound_vip`, `clusters::tunnels` and `clusters::waypoint_outbound`. Agrees with
//! Istio's `listener_waypoint.go`, `cluster_waypoint.go` and `waypoint.go` in `pilot/pkg/networking/core`.
//!
//! Gateways between networks (`istio.io/eastwest-controller`) are waypoints too: of all
//! multi-cluster services. Their connections are tunnels within a tunnel, of which they only see
//! the destination.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::istio::Destination;
use navarch_api::names::{Hostname, ResourceName};
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Resolution, Service, ServicePort};
use navarch_registry::protocol::Protocol;

use crate::hbone;
use crate::names::{OutboundCluster, TunnelCluster, VipCluster, VipTransport};
use crate::policy::PolicyService;
use navarch_ambient::bound;

/// The services behind the view's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServedServices;

/// The hosts of the services of the view's proxy, with their indexes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServedHosts;

/// The services behind the view's proxy, one for each host, oldest first.
pub(crate) fn services(view: &View<'_>) -> Arc<Vec<Arc<Service>>> {
    view.get(&ServedServices)
}

/// The service of a host, if it is behind the view's proxy.
pub(crate) fn service(view: &View<'_>, host: &Hostname) -> Option<Arc<Service>> {
    let index = view.get(&ServedHosts).get(host).copied()?;
    services(view).get(index).cloned()
}

/// The services of the view's proxy as policies reference them; empty if the proxy is not a
/// waypoint.
pub(crate) fn policy_services(view: &View<'_>) -> Vec<PolicyService> {
    if view.proxy().kind() != ProxyKind::Waypoint {
        return Vec::new();
    }
    services(view)
        .iter()
        .map(|service| PolicyService::new(service))
        .collect()
}

/// The names of a waypoint's listeners.
pub(crate) fn listener_names(view: &View<'_>) -> Vec<String> {
    let onward = if hbone::joins_networks(view) {
        hbone::FORWARD
    } else {
        hbone::ORIGINATE
    };
    let mut names = vec![hbone::TERMINATE, hbone::MAIN, onward];
    if hbone::leaves_network(view) {
        names.extend([hbone::INNER, hbone::OUTER]);
    }
    names.into_iter().map(str::to_owned).collect()
}

/// The names of a waypoint's tunnel clusters.
pub(crate) fn tunnel_cluster_names(view: &View<'_>) -> impl Iterator<Item = ResourceName> {
    let far = hbone::leaves_network(view).then_some([TunnelCluster::Inner, TunnelCluster::Outer]);
    let onward = if hbone::joins_networks(view) {
        TunnelCluster::Forward
    } else {
        TunnelCluster::Originate
    };
    let near = [TunnelCluster::Main, TunnelCluster::Encap, onward];
    near.into_iter()
        .chain(far.into_iter().flatten())
        .map(|cluster| ResourceName::new(cluster.name()))
}

/// The transports of a service port at a waypoint, in the order of its clusters; empty if the port
/// is not served. Between networks all traffic is in tunnels.
pub(crate) fn transports(view: &View<'_>, port: &ServicePort) -> &'static [VipTransport] {
    if port.protocol == Protocol::Udp {
        &[]
    } else if hbone::joins_networks(view) {
        &[VipTransport::Tcp]
    } else if port.protocol.is_unsupported() {
        &[VipTransport::Tcp, VipTransport::Http]
    } else if port.protocol.is_http() {
        &[VipTransport::Http]
    } else {
        &[VipTransport::Tcp]
    }
}

/// Whether a waypoint has clusters for a port of a service.
pub(crate) fn has_clusters(service: &Service, port: &ServicePort) -> bool {
    let is_dynamic = service.resolution == Resolution::DynamicDns;
    if is_dynamic {
        port.protocol == Protocol::Http
    } else {
        port.protocol != Protocol::Udp
    }
}

/// The cluster of a destination at a waypoint: its own for services behind it, else that of a
/// client.
pub(crate) fn destination_cluster(
    view: &View<'_>,
    destination: &Destination,
    service: Option<&Service>,
    listen_port: u16,
) -> String {
    if destination.host.is_empty() {
        return "UnknownService".to_owned();
    }

    let only_port = service.and_then(|service| match service.ports.as_slice() {
        [only] => Some(only.port),
        [] | [_, _, ..] => None,
    });
    let named = destination
        .port
        .as_ref()
        .and_then(|port| u16::try_from(port.number).ok());
    let port = named.or(only_port).unwrap_or(listen_port);

    let host = Hostname::new(&destination.host);
    let subset = &destination.subset;
    if service.is_some_and(|service| !view.get(&ServedHosts).contains_key(&service.key.hostname)) {
        return OutboundCluster::new(port, subset, &host).to_string();
    }

    let known = service.and_then(|service| service.port(port));
    let is_tcp = known
        .is_some_and(|port| !(port.protocol.is_http() || port.protocol.is_unsupported()))
        || hbone::joins_networks(view);
    let transport = if is_tcp {
        VipTransport::Tcp
    } else {
        VipTransport::Http
    };

    VipCluster::new(port, transport, &host)
        .with_subset(subset)
        .to_string()
}

impl Query for ServedServices {
    type Value = Vec<Arc<Service>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let found = bound::services_of_proxy(view);
        let mut services: Vec<Arc<Service>> = found
            .iter()
            .filter_map(|key| view.service(key).cloned())
            .collect();
        services.retain(|service| {
            let is_kept = service.resolution != Resolution::DynamicDns || service.mesh_external;
            if !is_kept {
                let host = &service.key.hostname;
                view.remark(format!("ServiceEntry of {host}: DYNAMIC_DNS is supported for MESH_EXTERNAL services only; its waypoint ignores it"));
            }
            is_kept
        });

        services.sort_by(|a, b| {
            let key = |service: &Service| (service.created, service.name.clone());
            key(a)
                .cmp(&key(b))
                .then_with(|| a.key.namespace.cmp(&b.key.namespace))
        });

        let mut hosts = BTreeMap::new();
        services.retain(|service| hosts.insert(service.key.hostname.clone(), ()).is_none());
        services
    }
}

impl Query for ServedHosts {
    type Value = BTreeMap<Hostname, usize>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let services = services(view);
        services
            .iter()
            .enumerate()
            .map(|(index, service)| (service.key.hostname.clone(), index))
            .collect()
    }
}
