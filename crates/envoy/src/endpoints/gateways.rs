//! Gateways instead of endpoints of other networks (split-horizon EDS).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_proto::envoy::config::endpoint::v3::LbEndpoint;

use super::group::{EndpointWorkload, Group, Member};
use super::target::{EndpointPath, Target};
use super::{tunnel, wire};
use crate::hbone;
use navarch_api::names::{ClusterId, NetworkId};
use navarch_push::proxy::{IpFamilies, ProxyKind};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::Location;
use navarch_registry::directory::NetworkGateway;

/// The gateways of all networks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Gateways {
    /// Whether gateways with a host name are used by name: proxies can only resolve it in DNS
    /// clusters. All others use the addresses to which the control plane resolved the host name.
    pub(super) with_names: bool,
}

/// The gateways of all networks, and the factor of weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayIndex {
    /// By network, ordered by address and port.
    by_network: BTreeMap<NetworkId, Vec<NetworkGateway>>,
    /// The factor that makes weights evenly divisible by the number of gateways of any network.
    scale: u32,
}

/// The order of gateways among endpoints. Gateways of two clusters may have the same address.
type GatewayKey = (Arc<str>, u16, NetworkGateway);

/// The fields of the proxy that determine how it reaches other networks.
struct Client {
    /// Its network, empty if unknown.
    network: NetworkId,
    families: IpFamilies,
    /// Whether it is a sidecar: sidecars cannot use gateways of ambient mode.
    sidecar: bool,
    /// How it passes gateways of a multi-network ambient mesh; `None` without such a mesh.
    joined: Option<GatewayMode>,
}

/// How a proxy passes the gateways of a multi-network ambient mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GatewayMode {
    /// By mutual TLS, as without ambient mode: a sidecar.
    Tls,
    /// By a tunnel within a tunnel.
    Tunnels,
    /// Not at all: it stays in its network.
    None,
}

impl Query for Gateways {
    type Value = GatewayIndex;

    fn compute(&self, view: &View<'_>) -> GatewayIndex {
        let mut by_network: BTreeMap<NetworkId, Vec<NetworkGateway>> = BTreeMap::new();

        for gateway in view.all_network_gateways() {
            let of_network = by_network.entry(gateway.network.clone()).or_default();
            if self.with_names || gateway.address.parse::<IpAddr>().is_ok() {
                of_network.push(gateway.clone());
            } else {
                let resolved = view.gateway_addresses(&gateway.address).iter();
                let at = |ip: &IpAddr| NetworkGateway {
                    address: Arc::from(ip.to_string()),
                    ..gateway.clone()
                };
                of_network.extend(resolved.map(at));
            }
        }

        by_network.retain(|_, gateways| !gateways.is_empty());
        let mut counts: Vec<usize> = Vec::new();

        for gateways in by_network.values_mut() {
            gateways.sort_by(|a, b| {
                (&a.address, a.port)
                    .cmp(&(&b.address, b.port))
                    .then_with(|| a.cmp(b))
            });
            gateways.dedup();
            counts.push(gateways.len());
            let mut of_clusters: BTreeMap<&ClusterId, usize> = BTreeMap::new();
            for gateway in gateways.iter() {
                *of_clusters.entry(&gateway.cluster).or_default() += 1;
            }
            counts.extend(of_clusters.into_values());
        }

        let scale = counts.into_iter().fold(1, least_common_multiple);
        GatewayIndex {
            by_network,
            scale: u32::try_from(scale).unwrap_or(u32::MAX),
        }
    }
}

impl GatewayIndex {
    /// Whether the mesh spans networks that are reached through gateways.
    pub(super) fn is_empty(&self) -> bool {
        self.by_network.is_empty()
    }

    /// The gateways for a workload: those of its cluster, else those of its network.
    fn towards(
        &self,
        network: &NetworkId,
        cluster: &ClusterId,
        client: &Client,
    ) -> Vec<&NetworkGateway> {
        let Some(all) = self.by_network.get(network) else {
            return Vec::new();
        };

        let own: Vec<&NetworkGateway> = all
            .iter()
            .filter(|gateway| gateway.cluster == *cluster)
            .collect();
        let chosen = if own.is_empty() {
            all.iter().collect()
        } else {
            own
        };

        let fits = |gateway: &&NetworkGateway| {
            if client.tunnels() {
                gateway.hbone_port != 0
            } else {
                !client.sidecar || gateway.port != 0
            }
        };

        chosen.into_iter().filter(fits).collect()
    }
}

impl Client {
    /// The fields of the view's proxy.
    fn of(view: &View<'_>) -> Self {
        let sidecar = view.proxy().kind() == ProxyKind::Sidecar;
        let joined = view
            .mesh()
            .settings
            .gateway_api
            .east_west
            .then(|| match sidecar {
                true => GatewayMode::Tls,
                false if hbone::leaves_network(view) => GatewayMode::Tunnels,
                false => GatewayMode::None,
            });
        Self {
            network: view.proxy().network(),
            families: view.proxy().families(),
            sidecar,
            joined,
        }
    }

    /// Whether gateways are passed by tunnels, if at all.
    fn tunnels(&self) -> bool {
        matches!(self.joined, Some(GatewayMode::Tunnels | GatewayMode::None))
    }

    /// Whether the proxy reaches a network without a gateway. An unknown network is assumed to be
    /// the proxy's own.
    fn is_in(&self, network: &NetworkId) -> bool {
        self.network.is_empty() || network.is_empty() || self.network == *network
    }

    /// Whether the proxy has an address of the gateway's family.
    fn reaches(&self, gateway: &NetworkGateway) -> bool {
        match (self.families, gateway.address.parse::<IpAddr>()) {
            (IpFamilies::DualV4First | IpFamilies::DualV6First, _) => true,
            (IpFamilies::V4, Ok(address)) => address.to_canonical().is_ipv4(),
            (IpFamilies::V6, Ok(address)) => address.to_canonical().is_ipv6(),
            (IpFamilies::V4 | IpFamilies::V6, Err(_)) => false,
        }
    }
}

/// Whether the proxy is in a network, if both are known.
pub(super) fn is_in_network(view: &View<'_>, network: &NetworkId) -> bool {
    let own = view.proxy().network();
    own.is_empty() || network.is_empty() || own == *network
}

/// Replaces endpoints that the proxy cannot reach directly by the gateways of their networks, which
/// get their weights. Without any gateways, all endpoints are assumed to be reachable, except by
/// tunnels.
pub(super) fn apply(
    view: &View<'_>,
    index: &GatewayIndex,
    target: &Target<'_>,
    groups: &mut [Group],
) {
    if index.is_empty() && !view.mesh().settings.gateway_api.east_west {
        return;
    }

    let client = Client::of(view);
    if index.is_empty() && !client.tunnels() {
        return;
    }

    for group in groups {
        let mut shares: BTreeMap<GatewayKey, (NetworkGateway, u32)> = BTreeMap::new();
        let members = std::mem::take(&mut group.members);
        for member in members {
            if let Some(member) = keep_or_replace(member, index, &client, &mut shares) {
                group.members.push(member);
            }
        }

        let tunnelled = client.tunnels().then_some(target);
        group.members.extend(
            shares
                .into_values()
                .map(|(gateway, weight)| through(gateway, weight, tunnelled)),
        );
        group.set_weight();
    }
}

/// The endpoint with its weight scaled if the proxy reaches it; otherwise its weight is added to
/// the gateways, or dropped.
fn keep_or_replace(
    mut member: Member,
    index: &GatewayIndex,
    client: &Client,
    shares: &mut BTreeMap<GatewayKey, (NetworkGateway, u32)>,
) -> Option<Member> {
    let EndpointWorkload::Workload(workload) = &member.behind else {
        return Some(member);
    };

    let Location {
        network, cluster, ..
    } = &*workload.location;
    let gateways = index.towards(network, cluster, client);
    let is_cut_off = || {
        client.joined == Some(GatewayMode::None)
            || !gateways.iter().any(|gateway| client.reaches(gateway))
    };
    if client.joined.is_some() && !client.is_in(network) && is_cut_off() {
        return None;
    }

    let weight = member.weight().max(1).saturating_mul(index.scale.max(1));
    member.wire.load_balancing_weight = Some(weight);

    // A proxy with an unknown network still uses the gateway of a network with a known one.
    let through_gateway = client.joined != Some(GatewayMode::None)
        && client.network.is_empty()
        && !network.is_empty()
        && !gateways.is_empty();
    if !through_gateway && (client.is_in(network) || gateways.is_empty()) {
        return (!wire::is_without_address(&member.wire)).then_some(member);
    }

    let reachable: Vec<&NetworkGateway> = gateways
        .into_iter()
        .filter(|gateway| client.reaches(gateway))
        .collect();

    // Gateways route by the SNI of mutual TLS, so endpoints without it cannot be reached except by
    // tunnels.
    if client.joined == Some(GatewayMode::Tunnels)
        || !client.tunnels() && wire::speaks_mtls(&member.wire)
    {
        let part = weight / u32::try_from(reachable.len()).unwrap_or(u32::MAX).max(1);
        for gateway in reachable {
            let key = (gateway.address.clone(), gateway.port, gateway.clone());
            let (_, sum) = shares.entry(key).or_insert_with(|| (gateway.clone(), 0));
            *sum = sum.saturating_add(part);
        }
    }

    None
}

/// A gateway as an endpoint; by tunnels to a target behind it, if given.
fn through(gateway: NetworkGateway, weight: u32, tunnelled: Option<&Target<'_>>) -> Member {
    let names = wire::Names {
        cluster: gateway.cluster.as_str(),
        ..wire::Names::default()
    };
    let mut metadata = wire::metadata(tunnelled.is_none(), Some(&names));
    let host = match tunnelled {
        Some(target) => {
            let is_chosen = target.way != EndpointPath::OfWaypoint;
            let host = target.service.key.hostname.as_str();
            tunnel::to_gateway(host, target.port, &gateway, &mut metadata, is_chosen)
        }
        None => wire::host(&gateway.address, gateway.port, &[]),
    };

    let wire = LbEndpoint {
        load_balancing_weight: Some(weight.max(1)),
        metadata: Some(metadata),
        host_identifier: Some(host),
        ..LbEndpoint::default()
    };

    Member {
        wire,
        behind: EndpointWorkload::Gateway(gateway),
    }
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    a.checked_div(greatest_common_divisor(a, b))
        .unwrap_or(a)
        .saturating_mul(b)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_can_be_split_over_any_number_of_gateways() {
        assert_eq!([2, 3, 4].into_iter().fold(1, least_common_multiple), 12);
    }
}
