//! Workloads of other networks: ztunnel gets one workload for each service and network, behind the
//! gateway of that network (Istio's `createSplitHorizonWorkload`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::names::{ClusterId, NetworkId, ResourceName};
use navarch_api::object::Kind;
use navarch_proto::istio::workload::{
    GatewayAddress, PortList, TunnelProtocol, Workload, WorkloadType,
};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::address_name::{AddressName, NetworkAddress};
use navarch_registry::model::ServiceKey;
use navarch_registry::remote_gateway::KnownGateway;

use crate::mesh::MeshFacts;
use crate::network_gateways::{self, GatewaysInto};
use crate::networks::{ServiceReach, are_joined, far_service, network_of, reach, remote_parts};
use crate::selected::host_of;
use crate::services;
use crate::wire::{gateway_by_host, gateway_by_ip, ip_of};

/// The default HBONE port of gateways.
const HBONE_PORT: u16 = 15008;

/// The workloads of a service in one other network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// The sum of its workloads' weights.
    capacity: u32,
    /// The identities of its workloads.
    identities: BTreeSet<Arc<str>>,
}

/// The workloads of a service in other networks, by network; empty if it is not multi-cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharesOf(pub(crate) ServiceKey);

impl Query for SharesOf {
    type Value = BTreeMap<NetworkId, Share>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut shares: Self::Value = BTreeMap::new();
        if reach(view, &self.0) != Some(ServiceReach::Mesh) {
            return shares;
        }

        let mesh = view.get(&MeshFacts);
        let parts = remote_parts(view, &self.0);

        // A remote cluster does not export workloads of a Service that is not multi-cluster there.
        let own_network = |cluster: &ClusterId| {
            let part = parts
                .iter()
                .find(|part| part.cluster == *cluster)
                .map(|part| &part.network);
            if *cluster == mesh.cluster {
                Some(&mesh.network)
            } else {
                part
            }
        };

        let mut seen: BTreeSet<(&ClusterId, Option<&Arc<str>>)> = BTreeSet::new();

        for endpoint in view
            .endpoints(&self.0)
            .iter()
            .flat_map(|endpoints| &endpoints.endpoints)
        {
            let workload = &endpoint.workload;
            let Some(of_cluster) = own_network(&workload.location.cluster) else {
                continue;
            };
            let network = endpoint.ambient_network(of_cluster);
            // A workload has an endpoint for each port.
            if *network != mesh.network
                && seen.insert((&workload.location.cluster, endpoint.addresses.first()))
            {
                let share = shares.entry(network.clone()).or_default();
                share.capacity = share.capacity.saturating_add(endpoint.weight.max(1));
                share.identities.extend(
                    Some(&workload.identity)
                        .filter(|identity| !identity.is_empty())
                        .cloned(),
                );
            }
        }

        shares
    }
}

/// The identities of the workloads of a service in other networks, sorted.
pub(crate) fn identities(view: &View<'_>, key: &ServiceKey) -> BTreeSet<Arc<str>> {
    let shares = view.get(&SharesOf(key.clone()));
    shares
        .values()
        .flat_map(|share| &share.identities)
        .cloned()
        .collect()
}

/// The workloads that represent those of a service in other networks.
pub(crate) fn workloads_of(view: &View<'_>, key: &ServiceKey) -> Vec<AddressName> {
    let shares = view.get(&SharesOf(key.clone()));
    let name = |network: &NetworkId| {
        let gateways = view.get(&GatewaysInto(network.clone()));
        let gateway = Arc::from(gateways.first()?.name());
        Some(AddressName::SplitHorizon {
            network: network.clone(),
            gateway,
            service: key.clone(),
        })
    };
    shares.keys().filter_map(name).collect()
}

/// The workload that represents those of a service in another network, if this is its gateway.
pub(crate) fn workload(
    network: &NetworkId,
    gateway: &str,
    service: &ServiceKey,
    view: &View<'_>,
) -> Option<Workload> {
    let shares = view.get(&SharesOf(service.clone()));
    let share = shares.get(network)?;
    let gateways = view.get(&GatewaysInto(network.clone()));
    let known = gateways.first().filter(|known| known.name() == gateway)?;
    let mesh = view.get(&MeshFacts);
    let name = AddressName::SplitHorizon {
        network: network.clone(),
        gateway: gateway.into(),
        service: service.clone(),
    };

    let ports = PortList {
        ports: services::service(service, view)?.ports,
    };
    Some(Workload {
        name: name.to_resource_name(&mesh.cluster).to_string(),
        namespace: service.namespace.to_string(),
        network: network.to_string(),
        capacity: Some(share.capacity),
        workload_type: WorkloadType::Pod.into(),
        tunnel_protocol: TunnelProtocol::Hbone.into(),
        network_gateway: Some(address_of(known)),
        cluster_id: known.cluster.to_string(),
        services: [(format!("{}/{}", service.namespace, service.hostname), ports)].into(),
        ..Workload::default()
    })
}

fn address_of(known: &KnownGateway) -> GatewayAddress {
    let gateway = &known.gateway;
    let port = if gateway.port == 0 {
        HBONE_PORT
    } else {
        gateway.port
    };
    match gateway.address.parse() {
        Ok(address) => gateway_by_ip(address, &gateway.network, port),
        Err(_) => gateway_by_host(&known.source.namespace, &gateway.address, port),
    }
}

/// The names of resources that are not maintained incrementally: gateways that remote clusters
/// declare.
pub(crate) fn names(view: &View<'_>) -> Vec<ResourceName> {
    let gateways = network_gateways::of_remotes(view);
    let cluster = view.get(&MeshFacts).cluster.clone();
    gateways
        .iter()
        .map(|known| gateway_name(known).to_resource_name(&cluster))
        .collect()
}

/// The name of the workload of a gateway.
pub(crate) fn gateway_name(known: &KnownGateway) -> AddressName {
    let gateway = &known.gateway;
    AddressName::NetworkGateway {
        network: gateway.network.clone(),
        address: gateway.address.clone(),
        port: gateway.port,
    }
}

/// The service with an address in a remote cluster; `None` without multi-network ambient mode.
pub(crate) fn service_at(address: &NetworkAddress, view: &View<'_>) -> Option<ServiceKey> {
    if !are_joined(view) {
        return None;
    }

    let clusters: Vec<ClusterId> = view.remote_clusters().cloned().collect();
    let mut homes = clusters
        .into_iter()
        .filter(|cluster| network_of(view, cluster) == address.network);
    homes.find_map(|cluster| {
        let cluster_ref = ClusterRef::Remote(cluster.clone());
        let found = view.objects_at_in(&cluster_ref, address.address);
        let mut services = found.filter(|object| object.kind == Kind::Service);
        services.find_map(|object| {
            let service = far_service(view, &cluster, &object.name)?;
            let hostname = host_of(
                &service.meta.key.name,
                &object.name.namespace,
                &view.mesh().settings.domain_suffix,
            );
            let key = ServiceKey {
                namespace: object.name.namespace.clone(),
                hostname,
            };
            // A service that the configuration cluster declares may be local to it.
            (reach(view, &key) == Some(ServiceReach::Mesh)).then_some(key)
        })
    })
}

/// The addresses of a service in all clusters, in istiod's order.
pub(crate) fn merge(
    view: &View<'_>,
    key: &ServiceKey,
    own: &mut navarch_proto::istio::workload::Service,
) {
    let parts = remote_parts(view, key);
    if !parts.is_empty() {
        let remote = parts.iter().flat_map(|part| {
            let addresses = part.object.spec.cluster_ips.addresses().iter();
            addresses.map(|address| crate::wire::network_address(*address, &part.network))
        });
        own.addresses.extend(remote);
        let order = |address: &navarch_proto::istio::workload::NetworkAddress| {
            let ip = ip_of(&address.address)
                .map(|ip| ip.to_string())
                .unwrap_or_default();
            format!("{}/{ip}", address.network)
        };
        own.addresses.sort_by_cached_key(order);
        own.addresses.dedup();
    }

    let mut names: BTreeSet<String> = own.subject_alt_names.drain(..).collect();
    names.extend(identities(view, key).iter().map(ToString::to_string));
    own.subject_alt_names = names.into_iter().collect();
}
