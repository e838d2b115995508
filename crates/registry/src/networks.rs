//! Finds the network of an address.

use std::net::IpAddr;

use super::model::Labels;
use navarch_api::mesh::MeshNetworks;
use navarch_api::names::{ClusterId, NetworkId};
use navarch_base::cidr::Cidr;

/// The label of workloads, of gateway services and of the system namespace that names a network.
pub const NETWORK_LABEL: &str = "topology.istio.io/network";

/// Finds the network of an endpoint: its label, then that of the system namespace, then mesh
/// networks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NetworkFinder {
    /// The label of the system namespace.
    system: Option<NetworkId>,
    /// The network that mesh networks assign to the whole registry.
    registry: Option<NetworkId>,
    /// Ranges of mesh networks, the widest first.
    ranges: Vec<(Cidr, NetworkId)>,
}

impl NetworkFinder {
    /// For the registry of one cluster, from mesh networks and the labels of the system namespace.
    #[must_use]
    pub(super) fn new(
        cluster: &ClusterId,
        networks: &MeshNetworks,
        system_labels: Option<&Labels>,
    ) -> Self {
        let mut finder = Self::default();
        let label = system_labels
            .and_then(|labels| labels.get(NETWORK_LABEL))
            .filter(|label| !label.is_empty());
        finder.system = label.map(NetworkId::new);

        for (id, network) in &networks.networks {
            for endpoints in &network.endpoints {
                if let Some(range) = endpoints.from_cidr.as_deref().and_then(Cidr::parse) {
                    finder.ranges.push((range, NetworkId::new(id)));
                }
                if endpoints.from_registry.as_deref() == Some(cluster.as_str())
                    && finder.registry.is_none()
                {
                    finder.registry = Some(NetworkId::new(id));
                }
            }
        }

        // Of nested ranges the widest is used, as in Istio.
        finder.ranges.sort_by_key(|(range, _)| range.bits);
        finder
    }

    /// The network of an endpoint with these labels at this address; empty if unknown.
    #[must_use]
    pub(super) fn find(&self, labels: &Labels, address: Option<IpAddr>) -> NetworkId {
        if let Some(label) = labels.get(NETWORK_LABEL).filter(|label| !label.is_empty()) {
            return NetworkId::new(label);
        }
        if let Some(network) = self.system.as_ref().or(self.registry.as_ref()) {
            return network.clone();
        }
        let found = address.and_then(|address| {
            self.ranges
                .iter()
                .find(|(range, _)| range.contains(address))
        });
        found
            .map(|(_, network)| network.clone())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::mesh::{Network, NetworkEndpoints};

    fn labels(network: &str) -> Labels {
        Labels::from([(NETWORK_LABEL.into(), network.into())])
    }

    fn networks() -> MeshNetworks {
        let cidr = |cidr: &str| NetworkEndpoints {
            from_cidr: Some(cidr.to_owned()),
            from_registry: None,
        };
        let network = |ranges: &[&str]| Network {
            endpoints: ranges.iter().map(|r| cidr(r)).collect(),
            gateways: vec![],
        };
        let networks = [
            ("n1".to_owned(), network(&["10.1.2.0/24"])),
            ("n2".to_owned(), network(&["10.1.0.0/16"])),
        ];
        MeshNetworks {
            networks: networks.into(),
        }
    }

    #[test]
    fn the_workloads_label_comes_first_then_the_system_namespace_then_mesh_networks() {
        let cluster = ClusterId::new("c");
        let ip = "10.1.2.3".parse().ok();
        let finder = NetworkFinder::new(&cluster, &networks(), None);
        assert_eq!(finder.find(&labels("own"), ip), "own");
        assert_eq!(finder.find(&labels(""), ip), "n2", "the widest range wins");
        assert_eq!(finder.find(&Labels::new(), None), "");
        let finder = NetworkFinder::new(&cluster, &networks(), Some(&labels("system")));
        assert_eq!(finder.find(&Labels::new(), ip), "system");
    }

    #[test]
    fn a_network_can_be_that_of_the_whole_registry() {
        let mut networks = networks();
        let endpoints = NetworkEndpoints {
            from_cidr: None,
            from_registry: Some("c".to_owned()),
        };
        networks
            .networks
            .get_mut("n1")
            .unwrap()
            .endpoints
            .push(endpoints);
        let finder = NetworkFinder::new(&ClusterId::new("c"), &networks, None);
        assert_eq!(finder.find(&Labels::new(), "10.1.9.9".parse().ok()), "n1");
    }
}
