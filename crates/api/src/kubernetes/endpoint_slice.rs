//! `discovery.k8s.io/v1/EndpointSlice`.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1 as wire;

use super::address::parse_ips;
use super::metadata::text;
use super::port::port_number;
use crate::field_error::FieldError;
use crate::names::{Namespace, PortName};
use crate::object::{NamespacedName, Object};
use navarch_base::ip_list::IpList;

/// The label that names the Service whose endpoints a slice holds.
pub(crate) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The kind of objects that are used as targets.
const POD: &str = "Pod";

/// Some of the endpoints of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// `addressType`.
    pub address_type: AddressType,
    /// The Service of the same namespace, from the label `kubernetes.io/service-name`.
    pub service: Option<Arc<str>>,
    /// `endpoints`. Empty for slices of type FQDN, whose addresses cannot be routed to.
    pub endpoints: Box<[Endpoint]>,
    /// `ports`, which all endpoints of the slice share.
    pub ports: Box<[EndpointPort]>,
}

/// The type of a slice's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressType {
    /// `IPv4`.
    Ipv4,
    /// `IPv6`.
    Ipv6,
    /// `FQDN`.
    Fqdn,
}

/// One endpoint, without its topology fields, which are taken from the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `addresses`: all reach the same endpoint.
    pub addresses: IpList,
    /// `conditions`, as written.
    pub conditions: EndpointConditions,
    /// `targetRef`, if it is a pod.
    pub pod: Option<NamespacedName>,
}

/// The conditions of an endpoint. Readers interpret an absent condition differently, so absence is
/// kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointConditions {
    /// `ready`.
    pub ready: Option<bool>,
    /// `serving`.
    pub serving: Option<bool>,
    /// `terminating`.
    pub terminating: Option<bool>,
}

/// One port of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPort {
    /// `name`, empty if unset; equal to the name of the Service's port.
    pub name: PortName,
    /// `port`; absent means every port.
    pub port: Option<u16>,
}

impl AddressType {
    /// Reads `addressType`.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        match text {
            "IPv4" => Ok(Self::Ipv4),
            "IPv6" => Ok(Self::Ipv6),
            "FQDN" => Ok(Self::Fqdn),
            other => Err(FieldError::new(
                "addressType",
                format!("{other:?} is not one of IPv4, IPv6, FQDN"),
            )),
        }
    }
}

impl Endpoint {
    /// Converts one endpoint; paths in errors start at the endpoint.
    fn from_wire(endpoint: wire::Endpoint) -> Result<Self, FieldError> {
        let conditions = endpoint.conditions.unwrap_or_default();
        Ok(Self {
            addresses: parse_ips(endpoint.addresses.iter().map(String::as_str), "addresses")?,
            conditions: EndpointConditions {
                ready: conditions.ready,
                serving: conditions.serving,
                terminating: conditions.terminating,
            },
            pod: endpoint
                .target_ref
                .filter(|target| target.kind.as_deref() == Some(POD))
                .map(|target| {
                    NamespacedName::of(
                        target.namespace.map(Namespace::new).unwrap_or_default(),
                        text(target.name),
                    )
                }),
        })
    }
}

impl EndpointPort {
    /// Converts one port; paths in errors start at the port.
    fn from_wire(port: wire::EndpointPort) -> Result<Self, FieldError> {
        Ok(Self {
            name: port.name.map(PortName::new).unwrap_or_default(),
            port: port
                .port
                .map(|number| port_number(number, "port"))
                .transpose()?,
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
        let endpoint = |(index, endpoint)| {
            Endpoint::from_wire(endpoint).map_err(|error| error.under_item("endpoints", index))
        };

        let port = |(index, port)| {
            EndpointPort::from_wire(port).map_err(|error| error.under_item("ports", index))
        };
        let service = object
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(SERVICE_NAME_LABEL));

        let spec = EndpointSlice {
            address_type,
            service: service
                .filter(|name| !name.is_empty())
                .map(|name| Arc::from(name.as_str())),
            endpoints: endpoints
                .into_iter()
                .enumerate()
                .map(endpoint)
                .collect::<Result<_, _>>()?,
            ports: object
                .ports
                .into_iter()
                .flatten()
                .enumerate()
                .map(port)
                .collect::<Result<_, _>>()?,
        };

        Ok(Self {
            meta: object.metadata.try_into()?,
            spec,
        })
    }
}

#[cfg(test)]
mod tests;
