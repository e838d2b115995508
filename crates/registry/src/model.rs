//! The one model of services and endpoints that translators read.
//!
//! Agrees with Istio's `pilot/pkg/model/service.go` in meaning. All values are immutable once
//! published and are compared by value: an object rewritten with equal content gives an equal
//! value, hence no change.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use super::location::Location;
use super::protocol::Protocol;
use super::workload_labels::WorkloadLabels;
use navarch_api::names::{ClusterId, Hostname, Namespace, NetworkId, PortName, ServiceAccount};
use navarch_api::object::ObjectRef;
use navarch_api::text_map::TextMap;
use navarch_base::small_map::SmallMap;

/// Labels of a workload or a service.
pub type Labels = TextMap;

/// The key of a service: hosts are declared per namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The namespace of the object that declares the service.
    pub namespace: Namespace,
    /// The host.
    pub hostname: Hostname,
}

/// A service: a host with ports, however it is declared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Host and namespace.
    pub key: ServiceKey,
    /// The object that declares it (Kubernetes Service or ServiceEntry).
    pub origin: ObjectRef,
    /// `destination.service.name` (Istio's `Attributes.Name`): object name for Kubernetes, the host
    /// for a ServiceEntry.
    pub name: Arc<str>,
    /// The registry that it comes from.
    pub registry: Registry,
    /// Creation time of the declaring object: on conflicts the older object wins.
    pub created: Option<Timestamp>,
    /// Labels of the declaring object.
    pub labels: Labels,
    /// Ports in declared order.
    pub ports: Vec<ServicePort>,
    /// How proxies find the endpoints.
    pub resolution: Resolution,
    /// Declared outside the mesh (`location: MESH_EXTERNAL`).
    pub mesh_external: bool,
    /// Which namespaces may see it.
    pub export_to: ExportTo,
    /// The address that proxies match by default: the first VIP or CIDR, `0.0.0.0` if there is
    /// none.
    pub default_address: Arc<str>,
    /// VIPs by cluster, in declared order (dual stack: both families).
    pub cluster_vips: SmallMap<ClusterId, Vec<Arc<str>>>,
    /// Address given by auto-allocation, IPv4.
    pub auto_ipv4: Option<IpAddr>,
    /// Address given by auto-allocation, IPv6.
    pub auto_ipv6: Option<IpAddr>,
    /// Labels that select its workloads; empty selects none.
    pub selector: Labels,
    /// SPIFFE ids that may run the service, sorted (`subjectAltNames`,
    /// `alpha.istio.io/…serviceaccounts` annotations).
    pub service_accounts: Vec<Arc<str>>,
    /// Other hosts that are aliases of this one (ExternalName), sorted.
    pub aliases: Vec<ServiceKey>,
    /// Load-balancer and node-port addresses by cluster, for gateways of other networks.
    pub external_addresses: SmallMap<ClusterId, Vec<Arc<str>>>,
    /// Service port to node port by cluster, if the service is reached from outside through node
    /// ports.
    pub external_ports: SmallMap<ClusterId, SmallMap<u16, u16>>,
    /// Service port to target port where a service without endpoints of its own (resolution NONE)
    /// renames ports.
    pub passthrough_target_ports: SmallMap<u16, u16>,
    /// Connections to all addresses of a DNS response are tried in parallel; the first established
    /// one is used (ServiceEntry annotation).
    pub races_connections: bool,
    /// Attributes of Kubernetes Services only.
    pub kubernetes: KubernetesAttributes,
}

/// Attributes of Kubernetes Services only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KubernetesAttributes {
    /// `spec.type` as text; empty for a ServiceEntry.
    pub service_type: &'static str,
    /// `spec.externalName`.
    pub external_name: Arc<str>,
    /// `spec.internalTrafficPolicy: Local`.
    pub node_local: bool,
    /// `spec.trafficDistribution` or its annotations.
    pub traffic_distribution: TrafficDistribution,
    /// `spec.publishNotReadyAddresses`.
    pub publish_not_ready: bool,
}

/// `spec.trafficDistribution` of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficDistribution {
    /// No preference.
    #[default]
    Any,
    /// Same zone first.
    PreferSameZone,
    /// Same node first.
    PreferSameNode,
}

/// A port that clients of a service use. Ports on the workloads are in [`Endpoint`] and
/// [`ServiceTarget`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    /// Its name, unique in the service.
    pub name: PortName,
    /// The number that clients use.
    pub port: u16,
    /// The declared or derived protocol.
    pub protocol: Protocol,
}

/// How proxies find the endpoints of a service (Istio's `Resolution`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// From the endpoints that the control plane sends.
    ClientSideLb,
    /// By DNS, to all addresses of the response.
    DnsLb,
    /// By DNS, to one address of the response.
    DnsRoundRobinLb,
    /// To the original destination address.
    Passthrough,
    /// An alias of another service.
    Alias,
    /// By DNS of the host in the request (wildcard hosts).
    DynamicDns,
}

/// The origin of a service or endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registry {
    /// The Kubernetes API of a cluster.
    Kubernetes,
    /// ServiceEntry and WorkloadEntry (Istio calls it `External`).
    External,
}

/// Which namespaces may see a service or a configuration object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExportTo {
    /// Unset: the mesh-wide default applies.
    Unset,
    /// `*`: all namespaces.
    Public,
    /// `~`: no namespace.
    Nobody,
    /// These namespaces (`.` is already resolved), sorted.
    Namespaces(Vec<Namespace>),
}

/// The endpoints of one service, over all of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceEndpoints {
    /// Sorted by address, port name and port.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// SPIFFE ids of the workloads behind the service, sorted and unique.
    pub service_accounts: Vec<Arc<str>>,
}

/// One workload port behind a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Addresses, the first is the main one; more for dual stack. A path for Unix sockets, a DNS
    /// name for DNS resolution.
    pub addresses: Vec<Arc<str>>,
    /// The service port that it serves.
    pub port_name: PortName,
    /// Service port number by which clusters matched it historically (ServiceEntry); 0 if it is
    /// matched by name.
    pub legacy_port_key: u16,
    /// The port on the workload; 0 for Unix sockets.
    pub port: u16,
    /// The workload behind it.
    pub workload: Arc<Workload>,
    /// Whether it may get traffic.
    pub health: Health,
    /// Sent although unhealthy.
    pub send_unhealthy: bool,
    /// Load-balancing weight; 0 means unset and counts as 1.
    pub weight: u32,
    /// Which clusters may see it: usually all; only its own cluster for `cluster-local` services.
    pub discoverability: Discoverability,
}

/// The workload behind endpoints. All endpoints of one workload share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Its own labels, without those of its location.
    pub own_labels: Labels,
    /// Of the object that declares the workload; empty if only its address is known.
    pub namespace: Namespace,
    /// The name of its owner (Deployment…), as Istio derives it from the pod.
    pub name: Arc<str>,
    /// Its SPIFFE id, empty if unknown.
    pub identity: Arc<str>,
    /// The ServiceAccount, empty if unknown.
    pub service_account: ServiceAccount,
    /// Where it runs.
    pub location: Arc<Location>,
    /// `istio` or `disabled` (label `security.istio.io/tlsMode`).
    pub tls_mode: TlsMode,
    /// Its name within a subdomain. Boxed, as few pods have one.
    pub dns_name: Option<Box<PodDnsName>>,
}

/// The name by which a pod is found in a subdomain of its headless Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDnsName {
    /// `spec.hostname` of the pod, else its name.
    pub hostname: Arc<str>,
    /// `spec.subdomain` of the pod.
    pub subdomain: Arc<str>,
}

/// Whether a workload accepts Istio's mTLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsMode {
    /// Plain text.
    #[default]
    Disabled,
    /// Istio's mTLS.
    Istio,
}

/// Health of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Not reported (ServiceEntries and WorkloadEntries): it gets traffic, and its health status is
    /// not set.
    #[default]
    Unknown,
    /// Ready.
    Healthy,
    /// Not ready.
    Unhealthy,
    /// Shutting down but still serving (persistent sessions).
    Draining,
    /// Shutting down.
    Terminating,
}

/// Which clusters may see an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discoverability {
    /// All proxies.
    #[default]
    Mesh,
    /// Proxies of the endpoint's own cluster.
    OwnCluster,
    /// Proxies on the endpoint's own node.
    OwnNode,
}

/// A service port that a workload serves: what inbound listeners and clusters are made from
/// (Istio's `ServiceTarget`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceTarget {
    /// Has an endpoint on `target_port` of the workload.
    pub service: Arc<Service>,
    /// Where clients of the service connect.
    pub port: ServicePort,
    /// The port on the workload.
    pub target_port: u16,
}

impl ServiceKey {
    /// From namespace and host.
    #[must_use]
    pub fn new(namespace: &str, hostname: &str) -> Self {
        Self {
            namespace: Namespace::new(namespace),
            hostname: Hostname::new(hostname),
        }
    }
}

impl Service {
    /// The port of this number. UDP ports are skipped, because proxies do not support UDP, and a
    /// UDP port may precede a TCP port of the same number, as in kube-dns (Istio's `GetByPort`).
    #[must_use]
    pub fn port(&self, number: u16) -> Option<&ServicePort> {
        self.ports
            .iter()
            .find(|port| port.port == number && port.protocol != Protocol::Udp)
    }

    /// The first port with the name; `None` without one.
    #[must_use]
    pub fn port_named(&self, name: &str) -> Option<&ServicePort> {
        self.ports.iter().find(|port| port.name.as_str() == name)
    }

    /// The ports by name, the first of each name, for many lookups.
    #[must_use]
    pub fn ports_by_name(&self) -> BTreeMap<&str, &ServicePort> {
        self.ports
            .iter()
            .rev()
            .map(|port| (port.name.as_str(), port))
            .collect()
    }

    /// A Kubernetes service without a VIP that has a selector or endpoints of its own.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.registry == Registry::Kubernetes && self.resolution == Resolution::Passthrough
    }
}

impl Endpoint {
    /// The network of the endpoint in ambient mode, where `of_cluster` is the network of its
    /// cluster: a WorkloadEntry sets its own, a pod is in the network of its cluster, whatever its
    /// labels.
    #[must_use]
    pub fn ambient_network<'a>(&'a self, of_cluster: &'a NetworkId) -> &'a NetworkId {
        if self.health == Health::Unknown {
            &self.workload.location.network
        } else {
            of_cluster
        }
    }
}

impl Workload {
    /// The labels that configuration selects by: its own, overridden by those of its location.
    #[must_use]
    pub fn labels(&self) -> WorkloadLabels<'_> {
        WorkloadLabels::new(&self.own_labels, &self.location.labels)
    }
}

impl ExportTo {
    /// Whether an object that is exported like this is visible in `namespace`; `default` replaces
    /// [`ExportTo::Unset`].
    #[must_use]
    pub fn is_exported_to(&self, namespace: &Namespace, default: &Self) -> bool {
        match self {
            Self::Unset => match default {
                Self::Unset => true,
                Self::Public | Self::Nobody | Self::Namespaces(_) => {
                    default.is_exported_to(namespace, &Self::Public)
                }
            },
            Self::Public => true,
            Self::Nobody => false,
            Self::Namespaces(namespaces) => namespaces.binary_search(namespace).is_ok(),
        }
    }
}
