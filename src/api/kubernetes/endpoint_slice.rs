//! `discovery.k8s.io/v1/EndpointSlice`.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1 as wire;

use super::address::parse_ips;
use super::metadata::{optional_text, text};
use super::port::{Protocol, port_number};
use crate::api::field_error::FieldError;
use crate::api::names::{Namespace, PortName};
use crate::api::object::Object;

/// The label that names the Service whose endpoints a slice holds.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// A part of the endpoints of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// `addressType`.
    pub address_type: AddressType,
    /// The Service of the same namespace, from the label `kubernetes.io/service-name`.
    pub service: Option<Arc<str>>,
    /// `endpoints`. Empty for slices of type FQDN, whose addresses nothing can be routed to.
    pub endpoints: Vec<Endpoint>,
    /// `ports`, which all endpoints of the slice share.
    pub ports: Vec<EndpointPort>,
}

/// What the addresses of a slice are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressType {
    /// `IPv4`.
    Ipv4,
    /// `IPv6`.
    Ipv6,
    /// `FQDN`.
    Fqdn,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `addresses`: all reach the same endpoint.
    pub addresses: Vec<IpAddr>,
    /// `conditions`, as written.
    pub conditions: EndpointConditions,
    /// `hostname`, the label under the Service's name in DNS.
    pub hostname: Option<Arc<str>>,
    /// `nodeName`.
    pub node: Option<Arc<str>>,
    /// `zone`.
    pub zone: Option<Arc<str>>,
    /// `targetRef`, mostly a pod.
    pub target: Option<TargetRef>,
    /// `hints.forZones`.
    pub zone_hints: Vec<Arc<str>>,
    /// `hints.forNodes`.
    pub node_hints: Vec<Arc<str>>,
}

/// The conditions of an endpoint. What an absent one means differs between readers, so absence is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointConditions {
    /// `ready`.
    pub ready: Option<bool>,
    /// `serving`.
    pub serving: Option<bool>,
    /// `terminating`.
    pub terminating: Option<bool>,
}

/// The object that stands behind an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRef {
    /// `kind`, such as `Pod`.
    pub kind: Arc<str>,
    /// `namespace`, empty when nothing is said.
    pub namespace: Namespace,
    /// `name`.
    pub name: Arc<str>,
}

/// One port of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPort {
    /// `name`, empty when nothing is said; equal to the name of the Service's port.
    pub name: PortName,
    /// `port`; absent means every port.
    pub port: Option<u16>,
    /// `protocol`.
    pub protocol: Protocol,
    /// `appProtocol`.
    pub app_protocol: Option<Arc<str>>,
}

impl AddressType {
    /// Reads `addressType`.
    fn parse(text: &str) -> Result<Self, FieldError> {
        match text {
            "IPv4" => Ok(Self::Ipv4),
            "IPv6" => Ok(Self::Ipv6),
            "FQDN" => Ok(Self::Fqdn),
            other => Err(FieldError::new("addressType", format!("{other:?} is not one of IPv4, IPv6, FQDN"))),
        }
    }
}

impl Endpoint {
    /// Takes one endpoint apart; paths in errors start at the endpoint.
    fn from_wire(endpoint: wire::Endpoint) -> Result<Self, FieldError> {
        let hints = endpoint.hints.unwrap_or_default();
        let conditions = endpoint.conditions.unwrap_or_default();
        Ok(Self {
            addresses: parse_ips(endpoint.addresses.iter().map(String::as_str), "addresses")?,
            conditions: EndpointConditions {
                ready: conditions.ready,
                serving: conditions.serving,
                terminating: conditions.terminating,
            },
            hostname: optional_text(endpoint.hostname),
            node: optional_text(endpoint.node_name),
            zone: optional_text(endpoint.zone),
            target: endpoint.target_ref.map(|target| TargetRef {
                kind: text(target.kind),
                namespace: target.namespace.map(Namespace::new).unwrap_or_default(),
                name: text(target.name),
            }),
            zone_hints: hints.for_zones.into_iter().flatten().map(|zone| Arc::from(zone.name)).collect(),
            node_hints: hints.for_nodes.into_iter().flatten().map(|node| Arc::from(node.name)).collect(),
        })
    }
}

impl EndpointPort {
    /// Takes one port apart; paths in errors start at the port.
    fn from_wire(port: wire::EndpointPort) -> Result<Self, FieldError> {
        Ok(Self {
            name: port.name.map(PortName::new).unwrap_or_default(),
            port: port.port.map(|number| port_number(number, "port")).transpose()?,
            protocol: Protocol::parse(port.protocol.as_deref())?,
            app_protocol: optional_text(port.app_protocol),
        })
    }
}

impl TryFrom<wire::EndpointSlice> for Object<EndpointSlice> {
    type Error = FieldError;

    fn try_from(object: wire::EndpointSlice) -> Result<Self, FieldError> {
        let address_type = AddressType::parse(&object.address_type)?;
        let endpoints = match address_type {
            AddressType::Fqdn => Vec::new(),
            AddressType::Ipv4 | AddressType::Ipv6 => object.endpoints.unwrap_or_default(),
        };
        let endpoint =
            |(index, endpoint)| Endpoint::from_wire(endpoint).map_err(|error| error.under_item("endpoints", index));
        let port = |(index, port)| EndpointPort::from_wire(port).map_err(|error| error.under_item("ports", index));
        let service = object.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
        let spec = EndpointSlice {
            address_type,
            service: service.filter(|name| !name.is_empty()).map(|name| Arc::from(name.as_str())),
            endpoints: endpoints.into_iter().enumerate().map(endpoint).collect::<Result<_, _>>()?,
            ports: object.ports.into_iter().flatten().enumerate().map(port).collect::<Result<_, _>>()?,
        };
        Ok(Self { meta: object.metadata.try_into()?, spec })
    }
}

#[cfg(test)]
mod tests;
