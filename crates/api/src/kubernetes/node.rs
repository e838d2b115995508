//! `v1/Node`.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

use crate::field_error::FieldError;
use crate::object::Object;

/// A node: its addresses. Its locality is in its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `status.addresses`, in their order.
    pub addresses: Vec<NodeAddress>,
    /// `status.nodeInfo.kubeletVersion`, such as `v1.33.1`; empty if unset.
    pub kubelet_version: Arc<str>,
}

/// An entry of `status.addresses`. Entries that are empty or of an unknown type are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// `type`: whether `address` is an IP address or a name, and from where it is reachable.
    pub kind: NodeAddressType,
    /// An IP address or a host name, by `kind`; never empty.
    pub address: Arc<str>,
}

/// The type of a node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAddressType {
    /// An IP address that is reachable inside the cluster.
    InternalIp,
    /// An IP address that is reachable from outside the cluster.
    ExternalIp,
    /// The host name that the kubelet reports.
    Hostname,
    /// A DNS name that resolves to internal addresses.
    InternalDns,
    /// A DNS name that resolves to external addresses.
    ExternalDns,
}

impl Node {
    /// The first address of the given kind.
    #[must_use]
    pub fn address(&self, kind: NodeAddressType) -> Option<&str> {
        self.addresses
            .iter()
            .find(|address| address.kind == kind)
            .map(|address| &*address.address)
    }
}

impl NodeAddress {
    /// `None` for an empty address and for a type that Kubernetes does not define: both are
    /// unusable.
    fn from_wire(address: wire::NodeAddress) -> Option<Self> {
        let kind = match address.type_.as_str() {
            "InternalIP" => NodeAddressType::InternalIp,
            "ExternalIP" => NodeAddressType::ExternalIp,
            "Hostname" => NodeAddressType::Hostname,
            "InternalDNS" => NodeAddressType::InternalDns,
            "ExternalDNS" => NodeAddressType::ExternalDns,
            _ => return None,
        };
        (!address.address.is_empty()).then(|| Self {
            kind,
            address: Arc::from(address.address),
        })
    }
}

impl TryFrom<wire::Node> for Object<Node> {
    type Error = FieldError;

    fn try_from(object: wire::Node) -> Result<Self, FieldError> {
        let status = object.status.unwrap_or_default();
        let addresses = status
            .addresses
            .into_iter()
            .flatten()
            .filter_map(NodeAddress::from_wire)
            .collect();

        let kubelet_version = Arc::from(
            status
                .node_info
                .map(|info| info.kubelet_version)
                .unwrap_or_default(),
        );

        Ok(Self {
            meta: object.metadata.try_into()?,
            spec: Node {
                addresses,
                kubelet_version,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_of_a_kind_is_found() {
        let object: wire::Node = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "n" },
            "status": { "nodeInfo": { "kubeletVersion": "v1.33.1" }, "addresses": [
                { "type": "InternalIP", "address": "10.0.0.1" },
                { "type": "ExternalIP", "address": "" },
                { "type": "ExternalIP", "address": "203.0.113.1" },
            ] },
        }))
        .unwrap();
        let node = Object::<Node>::try_from(object).unwrap();
        assert_eq!(
            node.spec.address(NodeAddressType::ExternalIp),
            Some("203.0.113.1")
        );
        assert_eq!(node.spec.address(NodeAddressType::Hostname), None);
        assert_eq!(&*node.spec.kubelet_version, "v1.33.1");
    }
}
