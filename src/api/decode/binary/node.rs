//! `v1.Node`.

use k8s_openapi::api::core::v1 as wire;
use prost::Message;

use super::listed;
use super::metadata::{ObjectMeta, metadata};
use crate::api::field_error::FieldError;
use crate::api::kubernetes;
use crate::api::object::Object;

/// `v1.Node`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    /// `metadata`.
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    /// `status`.
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

/// `v1.NodeStatus`.
#[derive(Clone, PartialEq, Message)]
struct Status {
    /// `addresses`.
    #[prost(message, repeated, tag = "5")]
    addresses: Vec<Address>,
}

/// `v1.NodeAddress`.
#[derive(Clone, PartialEq, Message)]
struct Address {
    /// `type`.
    #[prost(string, tag = "1")]
    kind: String,
    /// `address`.
    #[prost(string, tag = "2")]
    address: String,
}

impl TryFrom<Node> for Object<kubernetes::Node> {
    type Error = FieldError;

    fn try_from(node: Node) -> Result<Self, FieldError> {
        let addresses = node.status.into_iter().flat_map(|status| status.addresses);
        let addresses = addresses.map(|address| wire::NodeAddress { type_: address.kind, address: address.address });
        let status = wire::NodeStatus { addresses: listed(addresses.collect()), ..Default::default() };
        wire::Node { metadata: metadata(node.metadata), status: Some(status), ..Default::default() }.try_into()
    }
}
