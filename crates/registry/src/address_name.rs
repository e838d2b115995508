//! Resource names of workloads and services as ztunnel requests them.
//!
//! Agrees with Istio's `pilot/pkg/serviceregistry/ambient/helpers.go` (`generatePodUID` and similar
//! functions).

use std::net::IpAddr;
use std::sync::Arc;

use super::model::ServiceKey;
use navarch_api::names::{ClusterId, Hostname, Namespace, NetworkId, ResourceName};
use navarch_api::object::NamespacedName;

/// Prefix of the names of network gateways.
const NETWORK_GATEWAY: &str = "NetworkGateway/";
/// The separator between a network and the name of the workload that represents it.
const SPLIT_HORIZON: &str = "/SplitHorizonWorkload/";
/// The separator between the cluster and the name of a pod.
const POD: &str = "/Pod/";
/// The separator between the cluster and the name of a WorkloadEntry.
const WORKLOAD_ENTRY: &str = "networking.istio.io/WorkloadEntry/";
/// The separator between the cluster and the name of a ServiceEntry.
const SERVICE_ENTRY: &str = "networking.istio.io/ServiceEntry/";
/// The separator between the cluster and the name of an EndpointSlice.
const ENDPOINT_SLICE: &str = "discovery.k8s.io/EndpointSlice/";

/// What a name of the type `istio.workload.Address` refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressName {
    /// `cluster//Pod/namespace/name`, in this control plane's cluster.
    Pod(NamespacedName),
    /// `cluster/networking.istio.io/WorkloadEntry/namespace/name`, in this control plane's cluster.
    WorkloadEntry(NamespacedName),
    /// The endpoint of a ServiceEntry that has this address or host.
    Endpoint {
        /// ServiceEntry that lists the endpoint.
        entry: NamespacedName,
        /// The address as written, or the host that is resolved.
        address: Arc<str>,
    },
    /// The endpoint of an EndpointSlice with this address that is not a pod.
    SliceEndpoint {
        /// EndpointSlice that lists the endpoint.
        slice: NamespacedName,
        /// Its first address.
        address: IpAddr,
    },
    /// A gateway between networks.
    NetworkGateway {
        /// The network behind it.
        network: NetworkId,
        /// Its address or host.
        address: Arc<str>,
        /// Its HBONE port.
        port: u16,
    },
    /// All workloads of a service in another network.
    SplitHorizon {
        /// The network of the workloads.
        network: NetworkId,
        /// The network gateway: namespace and name of its object, and its address.
        gateway: Arc<str>,
        /// The service of the workloads.
        service: ServiceKey,
    },
    /// A workload of a remote cluster: a pod, a WorkloadEntry or an endpoint of an EndpointSlice.
    Remote {
        /// Begins the name instead of this control plane's cluster.
        cluster: ClusterId,
        /// Its name within the cluster.
        workload: Box<Self>,
    },
    /// `namespace/host`, without a cluster: a service is the same in all clusters.
    Service(ServiceKey),
}

/// An address in a network, as clients request it: `network/address`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkAddress {
    /// The network; empty in a mesh with a single network.
    pub network: NetworkId,
    /// IP address that clients connect to.
    pub address: IpAddr,
}

impl AddressName {
    /// Parses a name; `cluster` is the cluster of this control plane. `None` if malformed. A
    /// `network/address` parses as a service, which does not exist.
    #[must_use]
    pub fn parse(text: &str, cluster: &ClusterId) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(NETWORK_GATEWAY) {
            let (rest, port) = rest.rsplit_once('/')?;
            let (network, address) = rest.split_once('/')?;
            let network = NetworkId::new(network);
            let address = Arc::from(address);
            let port = port.parse().ok()?;
            return Some(Self::NetworkGateway {
                network,
                address,
                port,
            });
        }

        if let Some((network, rest)) = text.split_once(SPLIT_HORIZON) {
            let mut parts = rest.rsplitn(3, '/');
            let host = parts.next()?;
            let namespace = parts.next()?;
            let gateway = parts.next()?;
            let network = NetworkId::new(network);
            let gateway = Arc::from(gateway);
            return Some(Self::SplitHorizon {
                network,
                gateway,
                service: ServiceKey::new(namespace, host),
            });
        }

        let of_cluster = text
            .strip_prefix(cluster.as_str())
            .and_then(|rest| rest.strip_prefix('/'));
        if let Some(workload) = of_cluster.and_then(Self::parse_workload) {
            return Some(workload);
        }

        let (first, rest) = text.split_once('/')?;
        if let Some(workload) = Self::parse_workload(rest).filter(Self::may_be_remote) {
            return Some(workload.of_remote(&ClusterId::new(first)));
        }

        if rest.contains('/') {
            return None;
        }

        Some(Self::Service(ServiceKey {
            namespace: Namespace::new(first),
            hostname: Hostname::new(rest),
        }))
    }

    /// Parses the part after the cluster.
    fn parse_workload(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix(POD) {
            return Some(Self::Pod(object(name)?));
        }

        if let Some(name) = text.strip_prefix(WORKLOAD_ENTRY) {
            return Some(Self::WorkloadEntry(object(name)?));
        }

        // Addresses of endpoints may be paths of Unix sockets.
        let part = |rest: &str| {
            let mut parts = rest.splitn(3, '/').map(str::to_owned);
            Some((parts.next()?, parts.next()?, parts.next()?))
        };

        if let Some(rest) = text.strip_prefix(SERVICE_ENTRY) {
            let (namespace, name, address) = part(rest)?;
            return Some(Self::Endpoint {
                entry: NamespacedName::new(&namespace, &name),
                address: Arc::from(address),
            });
        }

        let (namespace, name, address) = part(text.strip_prefix(ENDPOINT_SLICE)?)?;
        let address = address.parse().ok()?;
        Some(Self::SliceEndpoint {
            slice: NamespacedName::new(&namespace, &name),
            address,
        })
    }

    /// The name of this workload in a remote cluster.
    #[must_use]
    pub fn of_remote(self, cluster: &ClusterId) -> Self {
        Self::Remote {
            cluster: cluster.clone(),
            workload: Box::new(self),
        }
    }

    /// Whether remote clusters have such workloads. ServiceEntries are only read in the
    /// configuration cluster.
    fn may_be_remote(&self) -> bool {
        matches!(
            self,
            Self::Pod(_) | Self::WorkloadEntry(_) | Self::SliceEndpoint { .. }
        )
    }

    /// The name as clients request it; `cluster` is the cluster of this control plane.
    #[must_use]
    pub fn to_resource_name(&self, cluster: &ClusterId) -> ResourceName {
        ResourceName::from(Arc::<str>::from(match self {
            Self::Pod(pod) => format!("{cluster}/{POD}{}/{}", pod.namespace, pod.name),
            Self::WorkloadEntry(entry) => format!(
                "{cluster}/{WORKLOAD_ENTRY}{}/{}",
                entry.namespace, entry.name
            ),
            Self::Endpoint { entry, address } => {
                format!(
                    "{cluster}/{SERVICE_ENTRY}{}/{}/{address}",
                    entry.namespace, entry.name
                )
            }
            Self::SliceEndpoint { slice, address } => {
                format!(
                    "{cluster}/{ENDPOINT_SLICE}{}/{}/{address}",
                    slice.namespace, slice.name
                )
            }

            Self::NetworkGateway {
                network,
                address,
                port,
            } => format!("{NETWORK_GATEWAY}{network}/{address}/{port}"),
            Self::SplitHorizon {
                network,
                gateway,
                service,
            } => {
                format!(
                    "{network}{SPLIT_HORIZON}{gateway}/{}/{}",
                    service.namespace, service.hostname
                )
            }

            Self::Remote { cluster, workload } => return workload.to_resource_name(cluster),
            Self::Service(key) => format!("{}/{}", key.namespace, key.hostname),
        }))
    }
}

impl NetworkAddress {
    /// Reads `network/address`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (network, address) = text.split_once('/')?;
        Some(Self {
            network: NetworkId::new(network),
            address: address.parse().ok()?,
        })
    }
}

/// Reads `namespace/name`.
fn object(text: &str) -> Option<NamespacedName> {
    let (namespace, name) = text
        .split_once('/')
        .filter(|(_, name)| !name.contains('/'))?;
    Some(NamespacedName::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let cluster = ClusterId::new("Kubernetes");
        let name = NamespacedName::new("shop", "web");
        let address = || Arc::from("10.0.0.1");

        for (named, text) in [
            (AddressName::Pod(name.clone()), "Kubernetes//Pod/shop/web"),
            (
                AddressName::Pod(name.clone()).of_remote(&ClusterId::new("two")),
                "two//Pod/shop/web",
            ),
            (
                AddressName::WorkloadEntry(name.clone()).of_remote(&ClusterId::new("two")),
                "two/networking.istio.io/WorkloadEntry/shop/web",
            ),
            (
                AddressName::WorkloadEntry(name.clone()),
                "Kubernetes/networking.istio.io/WorkloadEntry/shop/web",
            ),
            (
                AddressName::Endpoint {
                    entry: name.clone(),
                    address: Arc::from("unix:///run/web"),
                },
                "Kubernetes/networking.istio.io/ServiceEntry/shop/web/unix:///run/web",
            ),
            (
                AddressName::SliceEndpoint {
                    slice: name,
                    address: [10, 0, 0, 1].into(),
                },
                "Kubernetes/discovery.k8s.io/EndpointSlice/shop/web/10.0.0.1",
            ),
            (
                AddressName::NetworkGateway {
                    network: NetworkId::new("n"),
                    address: address(),
                    port: 15008,
                },
                "NetworkGateway/n/10.0.0.1/15008",
            ),
            (
                AddressName::SplitHorizon {
                    network: NetworkId::new("n2"),
                    gateway: Arc::from("istio-system/east-west/10.0.0.1"),
                    service: ServiceKey::new("shop", "web.example.com"),
                },
                "n2/SplitHorizonWorkload/istio-system/east-west/10.0.0.1/shop/web.example.com",
            ),
            (
                AddressName::Service(ServiceKey::new("shop", "web.example.com")),
                "shop/web.example.com",
            ),
        ] {
            assert_eq!(
                AddressName::parse(text, &cluster),
                Some(named.clone()),
                "{text}"
            );
            assert_eq!(named.to_resource_name(&cluster).as_str(), text);
        }
    }

    #[test]
    fn invalid_address_names_are_not_parsed() {
        let cluster = ClusterId::new("Kubernetes");

        for text in [
            "",
            "web",
            "a/b/c",
            "Kubernetes//Pod/shop",
            "NetworkGateway/n/10.0.0.1",
            "Kubernetes//Pod/a/b/c",
        ] {
            assert_eq!(AddressName::parse(text, &cluster), None, "{text}");
        }

        // ServiceEntries of remote clusters are ignored.
        for text in [
            "two//Pod/shop",
            "two/networking.istio.io/ServiceEntry/shop/web/10.0.0.1",
        ] {
            assert_eq!(AddressName::parse(text, &cluster), None, "{text}");
        }

        let one = NetworkAddress {
            network: NetworkId::default(),
            address: [10, 9, 9, 9].into(),
        };
        assert_eq!(NetworkAddress::parse("/10.9.9.9"), Some(one));
        assert_eq!(
            NetworkAddress::parse("shop/web.shop.svc.cluster.local"),
            None
        );
    }
}
