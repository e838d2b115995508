//! The ports of a Service.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::optional_text;
use super::port::{Protocol, port_number};
use crate::field_error::FieldError;
use crate::names::PortName;

/// An entry of `spec.ports`: clients connect to `port`, pods listen on `target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// `name`; empty if the only port of a Service has no name.
    pub name: PortName,
    /// `port`, 1 to 65535.
    pub port: u16,
    /// `protocol`.
    pub protocol: Protocol,
    /// `appProtocol`.
    pub app_protocol: Option<Arc<str>>,
    /// `targetPort`; the default is the port itself.
    pub target: TargetPort,
    /// `nodePort`, if one is allocated.
    pub node_port: Option<u16>,
}

/// The port of the pods that a Service port targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// The same number on each pod.
    Number(u16),
    /// The number of each pod's container port with this name.
    Name(PortName),
}

impl ServicePort {
    /// Converts one port; paths in errors start at the port.
    pub(super) fn from_wire(wire: wire::ServicePort) -> Result<Self, FieldError> {
        let port = port_number(wire.port, "port")?;
        let target = match wire.target_port {
            None | Some(IntOrString::Int(0)) => TargetPort::Number(port),
            Some(IntOrString::Int(number)) => {
                TargetPort::Number(port_number(number, "targetPort")?)
            }
            Some(IntOrString::String(name)) if name.is_empty() => TargetPort::Number(port),
            Some(IntOrString::String(name)) => TargetPort::Name(PortName::new(name)),
        };

        let node_port = wire.node_port.filter(|number| *number != 0);
        Ok(Self {
            name: wire.name.map(PortName::new).unwrap_or_default(),
            port,
            protocol: Protocol::parse(wire.protocol.as_deref())?,
            app_protocol: optional_text(wire.app_protocol),
            target,
            node_port: node_port
                .map(|number| port_number(number, "nodePort"))
                .transpose()?,
        })
    }
}
