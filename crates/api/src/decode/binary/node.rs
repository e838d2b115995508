//! `v1.Node`.

use k8s_openapi::api::core::v1 as wire;
use prost::Message;

use super::listed;
use super::metadata::{ObjectMeta, metadata};
use crate::field_error::FieldError;
use crate::kubernetes;
use crate::object::Object;

/// `v1.Node`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<Status>,
}

/// `v1.NodeStatus`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(message, repeated, tag = "5")]
    pub(super) addresses: Vec<Address>,
    #[prost(message, optional, tag = "7")]
    pub(super) node_info: Option<SystemInfo>,
}

/// `v1.NodeSystemInfo`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SystemInfo {
    #[prost(string, tag = "7")]
    pub(super) kubelet_version: String,
}

/// `v1.NodeAddress`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    /// `type`.
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) address: String,
}

impl TryFrom<Node> for Object<kubernetes::Node> {
    type Error = FieldError;

    fn try_from(node: Node) -> Result<Self, FieldError> {
        let status = node.status.unwrap_or_default();
        let address = |address: Address| wire::NodeAddress {
            type_: address.kind,
            address: address.address,
        };
        let info = |info: SystemInfo| wire::NodeSystemInfo {
            kubelet_version: info.kubelet_version,
            ..Default::default()
        };

        let status = wire::NodeStatus {
            addresses: listed(status.addresses.into_iter().map(address).collect()),
            node_info: status.node_info.map(info),
            ..Default::default()
        };

        wire::Node {
            metadata: metadata(node.metadata),
            status: Some(status),
            ..Default::default()
        }
        .try_into()
    }
}
