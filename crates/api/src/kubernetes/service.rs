//! `v1/Service`.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

use super::address::{parse_ip, parse_ips};
use super::metadata::{optional_text, text_map};
use super::port::{Protocol, port_number};
use super::service_port::ServicePort;
use crate::field_error::FieldError;
use crate::names::Hostname;
use crate::object::Object;
use crate::text_map::TextMap;
use navarch_base::ip_list::IpList;

/// The value of `clusterIP` of a headless Service.
const HEADLESS: &str = "None";

/// Names and virtual addresses for pods; the endpoints themselves are in EndpointSlices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// `spec.type`.
    pub service_type: ServiceType,
    /// `spec.clusterIPs`, or `spec.clusterIP` if only that is set.
    pub cluster_ips: ClusterIps,
    /// `spec.ipFamilies`.
    pub ip_families: IpFamilies,
    /// `spec.ports`.
    pub ports: Box<[ServicePort]>,
    /// `spec.selector`. Empty selects nothing: the endpoints are managed elsewhere.
    pub selector: TextMap,
    /// `spec.externalIPs`.
    pub external_ips: IpList,
    /// `spec.publishNotReadyAddresses`.
    pub publish_not_ready_addresses: bool,
    /// `spec.internalTrafficPolicy`.
    pub internal_traffic_policy: TrafficPolicy,
    /// `spec.externalTrafficPolicy`.
    pub external_traffic_policy: TrafficPolicy,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: Option<TrafficDistribution>,
    /// `spec.sessionAffinity`.
    pub session_affinity: SessionAffinity,
    /// `status.loadBalancer.ingress`.
    pub load_balancer: Box<[LoadBalancerIngress]>,
}

/// `spec.type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// Reachable inside the cluster only.
    ClusterIp,
    /// Also reachable on a port of every node.
    NodePort,
    /// Also reachable through a load balancer outside the cluster.
    LoadBalancer,
    /// An alias for another DNS name, `spec.externalName`.
    ExternalName(Hostname),
}

/// The virtual addresses of a Service inside the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterIps {
    /// The cluster has not assigned an address yet, or the type has none.
    Unassigned,
    /// `None`: clients connect to the endpoints directly.
    Headless,
    /// One address, or one of each family.
    Assigned(IpList),
}

/// The families of a Service's virtual addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamilies {
    /// Not set.
    #[default]
    Unsaid,
    /// `IPv4`.
    V4,
    /// `IPv6`.
    V6,
    /// Both, in either order.
    Dual,
}

/// Whether traffic may leave the node on which it arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficPolicy {
    /// `Cluster`: to every endpoint.
    #[default]
    Cluster,
    /// `Local`: to endpoints on the same node only.
    Local,
}

/// Which endpoints are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficDistribution {
    /// `PreferSameZone`, and its older name `PreferClose`.
    PreferSameZone,
    /// `PreferSameNode`.
    PreferSameNode,
}

/// Whether all connections of a client reach the same endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionAffinity {
    /// `None`.
    #[default]
    None,
    /// `ClientIP`.
    ClientIp,
}

/// One ingress point of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerIngress {
    /// `ip`.
    pub ip: Option<IpAddr>,
    /// `hostname`, for load balancers with a DNS name.
    pub hostname: Option<Hostname>,
    /// `ports`, empty if the load balancer does not report them.
    pub ports: Vec<LoadBalancerPort>,
}

/// The state of one port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerPort {
    /// `port`.
    pub port: u16,
    /// `protocol`.
    pub protocol: Protocol,
    /// `error`, if the port does not work.
    pub error: Option<Arc<str>>,
}

impl Service {
    /// Whether the Service is headless.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ips == ClusterIps::Headless
    }

    /// Converts the spec; paths in errors start at `spec`.
    fn from_wire(spec: wire::ServiceSpec) -> Result<Self, FieldError> {
        let service_type = ServiceType::from_wire(spec.type_.as_deref(), spec.external_name)?;
        let cluster_ips = ClusterIps::from_wire(spec.cluster_ip, spec.cluster_ips)?;
        let port = |(index, port)| {
            ServicePort::from_wire(port).map_err(|error| error.under_item("ports", index))
        };
        let external_ips = spec.external_ips.unwrap_or_default();

        Ok(Self {
            service_type,
            cluster_ips,
            ip_families: IpFamilies::parse(spec.ip_families.iter().flatten().map(String::as_str)),
            ports: spec
                .ports
                .into_iter()
                .flatten()
                .enumerate()
                .map(port)
                .collect::<Result<_, _>>()?,
            selector: text_map(spec.selector),
            external_ips: parse_ips(external_ips.iter().map(String::as_str), "externalIPs")?,
            publish_not_ready_addresses: spec.publish_not_ready_addresses.unwrap_or_default(),
            internal_traffic_policy: TrafficPolicy::parse(
                spec.internal_traffic_policy.as_deref(),
                "internalTrafficPolicy",
            )?,
            external_traffic_policy: TrafficPolicy::parse(
                spec.external_traffic_policy.as_deref(),
                "externalTrafficPolicy",
            )?,
            traffic_distribution: spec
                .traffic_distribution
                .and_then(|text| TrafficDistribution::parse(&text)),
            session_affinity: SessionAffinity::parse(spec.session_affinity.as_deref())?,
            load_balancer: Box::default(),
        })
    }
}

impl ServiceType {
    /// Parses `type` and, if the type uses it, `externalName`.
    pub(crate) fn from_wire(
        text: Option<&str>,
        external_name: Option<String>,
    ) -> Result<Self, FieldError> {
        match text {
            None | Some("" | "ClusterIP") => Ok(Self::ClusterIp),
            Some("NodePort") => Ok(Self::NodePort),
            Some("LoadBalancer") => Ok(Self::LoadBalancer),
            Some("ExternalName") => match external_name {
                Some(name) if !name.is_empty() => Ok(Self::ExternalName(Hostname::new(name))),
                _ => Err(FieldError::new(
                    "externalName",
                    "is required for type ExternalName",
                )),
            },
            Some(other) => {
                let reason = format!(
                    "{other:?} is not one of ClusterIP, NodePort, LoadBalancer, ExternalName"
                );
                Err(FieldError::new("type", reason))
            }
        }
    }

    /// The type as Kubernetes writes it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
            Self::ExternalName(_) => "ExternalName",
        }
    }
}

impl ClusterIps {
    /// Reads `clusterIP` and `clusterIPs`, of which either may be absent.
    pub(crate) fn from_wire(
        one: Option<String>,
        all: Option<Vec<String>>,
    ) -> Result<Self, FieldError> {
        let one = one.filter(|text| !text.is_empty());
        let all = all.filter(|texts| !texts.is_empty());
        let texts: Vec<String> = match (all, one) {
            (Some(all), Some(one)) if all.first() != Some(&one) => {
                return Err(FieldError::new(
                    "clusterIPs[0]",
                    format!("differs from clusterIP {one:?}"),
                ));
            }
            (Some(all), _) => all,
            (None, Some(one)) => vec![one],
            (None, None) => return Ok(Self::Unassigned),
        };

        if texts.iter().any(|text| text == HEADLESS) {
            return Ok(Self::Headless);
        }

        Ok(Self::Assigned(parse_ips(
            texts.iter().map(String::as_str),
            "clusterIPs",
        )?))
    }

    /// The addresses; empty if none is assigned.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        match self {
            Self::Unassigned | Self::Headless => &[],
            Self::Assigned(addresses) => addresses,
        }
    }
}

impl IpFamilies {
    /// Reads `ipFamilies`.
    pub(crate) fn parse<'a>(families: impl IntoIterator<Item = &'a str>) -> Self {
        let mut families = families.into_iter();
        match (families.next(), families.next()) {
            (None, _) => Self::Unsaid,
            (Some("IPv4"), None) => Self::V4,
            (Some(_), None) => Self::V6,
            (Some(_), Some(_)) => Self::Dual,
        }
    }
}

impl TrafficPolicy {
    /// Reads one of the two traffic policies; the error names the field by `path`.
    pub(crate) fn parse(text: Option<&str>, path: &str) -> Result<Self, FieldError> {
        match text {
            None | Some("" | "Cluster") => Ok(Self::Cluster),
            Some("Local") => Ok(Self::Local),
            Some(other) => Err(FieldError::new(
                path,
                format!("{other:?} is not one of Cluster, Local"),
            )),
        }
    }
}

impl TrafficDistribution {
    /// Parses `trafficDistribution`. It is a preference, so an unknown value is ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "PreferSameZone" | "PreferClose" => Some(Self::PreferSameZone),
            "PreferSameNode" => Some(Self::PreferSameNode),
            _ => None,
        }
    }
}

impl SessionAffinity {
    /// Reads `sessionAffinity`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, FieldError> {
        match text {
            None | Some("" | "None") => Ok(Self::None),
            Some("ClientIP") => Ok(Self::ClientIp),
            Some(other) => Err(FieldError::new(
                "sessionAffinity",
                format!("{other:?} is not one of None, ClientIP"),
            )),
        }
    }
}

impl LoadBalancerIngress {
    /// Converts one ingress point; paths in errors start at it.
    fn from_wire(ingress: wire::LoadBalancerIngress) -> Result<Self, FieldError> {
        let port = |(index, port): (usize, wire::PortStatus)| {
            let converted = port_number(port.port, "port").and_then(|number| {
                let protocol = Protocol::parse(Some(&port.protocol))?;
                Ok(LoadBalancerPort {
                    port: number,
                    protocol,
                    error: optional_text(port.error),
                })
            });
            converted.map_err(|error| error.under_item("ports", index))
        };

        let ip = ingress.ip.filter(|ip| !ip.is_empty());
        Ok(Self {
            ip: ip.map(|ip| parse_ip(&ip, "ip")).transpose()?,
            hostname: ingress
                .hostname
                .filter(|name| !name.is_empty())
                .map(Hostname::new),
            ports: ingress
                .ports
                .into_iter()
                .flatten()
                .enumerate()
                .map(port)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<wire::Service> for Object<Service> {
    type Error = FieldError;

    fn try_from(object: wire::Service) -> Result<Self, FieldError> {
        let mut spec = Service::from_wire(object.spec.unwrap_or_default())
            .map_err(|error| error.under("spec"))?;
        let status = object
            .status
            .and_then(|status| status.load_balancer)
            .and_then(|balancer| balancer.ingress);
        let ingress = |(index, ingress)| {
            LoadBalancerIngress::from_wire(ingress)
                .map_err(|error| error.under_item("status.loadBalancer.ingress", index))
        };

        spec.load_balancer = status
            .into_iter()
            .flatten()
            .enumerate()
            .map(ingress)
            .collect::<Result<_, _>>()?;

        Ok(Self {
            meta: object.metadata.try_into()?,
            spec,
        })
    }
}

#[cfg(test)]
mod tests;
