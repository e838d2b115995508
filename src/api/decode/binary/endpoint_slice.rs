//! `discovery.v1.EndpointSlice`.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as wire;
use prost::Message;

use super::metadata::{ObjectMeta, metadata};
use super::{listed, there};
use crate::api::field_error::FieldError;
use crate::api::kubernetes;
use crate::api::object::Object;

/// `discovery.v1.EndpointSlice`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointSlice {
    /// `metadata`.
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    /// `endpoints`.
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<Endpoint>,
    /// `ports`.
    #[prost(message, repeated, tag = "3")]
    ports: Vec<Port>,
    /// `addressType`.
    #[prost(string, tag = "4")]
    address_type: String,
}

/// `discovery.v1.Endpoint`.
#[derive(Clone, PartialEq, Message)]
struct Endpoint {
    /// `addresses`.
    #[prost(string, repeated, tag = "1")]
    addresses: Vec<String>,
    /// `conditions`.
    #[prost(message, optional, tag = "2")]
    conditions: Option<Conditions>,
    /// `hostname`.
    #[prost(string, tag = "3")]
    hostname: String,
    /// `targetRef`.
    #[prost(message, optional, tag = "4")]
    target: Option<Target>,
    /// `nodeName`.
    #[prost(string, tag = "6")]
    node: String,
    /// `zone`.
    #[prost(string, tag = "7")]
    zone: String,
    /// `hints`.
    #[prost(message, optional, tag = "8")]
    hints: Option<Hints>,
}

/// `discovery.v1.EndpointConditions`.
#[derive(Clone, PartialEq, Message)]
struct Conditions {
    /// `ready`.
    #[prost(bool, optional, tag = "1")]
    ready: Option<bool>,
    /// `serving`.
    #[prost(bool, optional, tag = "2")]
    serving: Option<bool>,
    /// `terminating`.
    #[prost(bool, optional, tag = "3")]
    terminating: Option<bool>,
}

/// `v1.ObjectReference`.
#[derive(Clone, PartialEq, Message)]
struct Target {
    /// `kind`.
    #[prost(string, tag = "1")]
    kind: String,
    /// `namespace`.
    #[prost(string, tag = "2")]
    namespace: String,
    /// `name`.
    #[prost(string, tag = "3")]
    name: String,
}

/// `discovery.v1.EndpointHints`.
#[derive(Clone, PartialEq, Message)]
struct Hints {
    /// `forZones`.
    #[prost(message, repeated, tag = "1")]
    zones: Vec<Named>,
    /// `forNodes`.
    #[prost(message, repeated, tag = "2")]
    nodes: Vec<Named>,
}

/// `discovery.v1.ForZone` and `discovery.v1.ForNode`.
#[derive(Clone, PartialEq, Message)]
struct Named {
    /// `name`.
    #[prost(string, tag = "1")]
    name: String,
}

/// `discovery.v1.EndpointPort`.
#[derive(Clone, PartialEq, Message)]
struct Port {
    /// `name`.
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    /// `protocol`.
    #[prost(string, tag = "2")]
    protocol: String,
    /// `port`.
    #[prost(int32, optional, tag = "3")]
    port: Option<i32>,
    /// `appProtocol`.
    #[prost(string, tag = "4")]
    app_protocol: String,
}

impl From<Endpoint> for wire::Endpoint {
    fn from(endpoint: Endpoint) -> Self {
        let conditions = endpoint.conditions.map(|conditions| wire::EndpointConditions {
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
        });
        let target = endpoint.target.map(|target| core::ObjectReference {
            kind: there(target.kind),
            namespace: there(target.namespace),
            name: there(target.name),
            ..Default::default()
        });
        let hints = endpoint.hints.map(|hints| wire::EndpointHints {
            for_zones: listed(hints.zones.into_iter().map(|zone| wire::ForZone { name: zone.name }).collect()),
            for_nodes: listed(hints.nodes.into_iter().map(|node| wire::ForNode { name: node.name }).collect()),
        });
        Self {
            addresses: endpoint.addresses,
            conditions,
            hostname: there(endpoint.hostname),
            target_ref: target,
            node_name: there(endpoint.node),
            zone: there(endpoint.zone),
            hints,
            ..Self::default()
        }
    }
}

impl TryFrom<EndpointSlice> for Object<kubernetes::EndpointSlice> {
    type Error = FieldError;

    fn try_from(slice: EndpointSlice) -> Result<Self, FieldError> {
        let port = |port: Port| wire::EndpointPort {
            name: port.name,
            protocol: there(port.protocol),
            port: port.port,
            app_protocol: there(port.app_protocol),
        };
        wire::EndpointSlice {
            metadata: metadata(slice.metadata),
            address_type: slice.address_type,
            endpoints: listed(slice.endpoints.into_iter().map(wire::Endpoint::from).collect()),
            ports: listed(slice.ports.into_iter().map(port).collect()),
        }
        .try_into()
    }
}
