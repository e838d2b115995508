//! `discovery.v1.EndpointSlice`.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as wire;
use prost::Message;

use super::metadata::{ObjectMeta, metadata};
use super::{listed, non_empty};
use crate::field_error::FieldError;
use crate::kubernetes;
use crate::object::Object;

/// `discovery.v1.EndpointSlice`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointSlice {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(super) endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "3")]
    pub(super) ports: Vec<Port>,
    #[prost(string, tag = "4")]
    pub(super) address_type: String,
}

/// `discovery.v1.Endpoint`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Endpoint {
    #[prost(string, repeated, tag = "1")]
    pub(super) addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) conditions: Option<Conditions>,
    /// `targetRef`.
    #[prost(message, optional, tag = "4")]
    pub(super) target: Option<Target>,
}

/// `discovery.v1.EndpointConditions`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Conditions {
    #[prost(bool, optional, tag = "1")]
    pub(super) ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub(super) serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub(super) terminating: Option<bool>,
}

/// `v1.ObjectReference`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Target {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// `discovery.v1.EndpointPort`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Port {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub(super) port: Option<i32>,
}

impl From<Endpoint> for wire::Endpoint {
    fn from(endpoint: Endpoint) -> Self {
        let conditions = endpoint
            .conditions
            .map(|conditions| wire::EndpointConditions {
                ready: conditions.ready,
                serving: conditions.serving,
                terminating: conditions.terminating,
            });

        let target = endpoint.target.map(|target| core::ObjectReference {
            kind: non_empty(target.kind),
            namespace: non_empty(target.namespace),
            name: non_empty(target.name),
            ..Default::default()
        });

        Self {
            addresses: endpoint.addresses,
            conditions,
            target_ref: target,
            ..Self::default()
        }
    }
}

impl TryFrom<EndpointSlice> for Object<kubernetes::EndpointSlice> {
    type Error = FieldError;

    fn try_from(slice: EndpointSlice) -> Result<Self, FieldError> {
        let port = |port: Port| wire::EndpointPort {
            name: port.name,
            port: port.port,
            ..Default::default()
        };

        wire::EndpointSlice {
            metadata: metadata(slice.metadata),
            address_type: slice.address_type,
            endpoints: listed(
                slice
                    .endpoints
                    .into_iter()
                    .map(wire::Endpoint::from)
                    .collect(),
            ),
            ports: listed(slice.ports.into_iter().map(port).collect()),
        }
        .try_into()
    }
}
