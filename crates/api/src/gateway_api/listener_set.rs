//! ListenerSet.

use serde::{Deserialize, Serialize};

use super::{Listener, gateway_group, gateway_kind};

/// `gateway.networking.k8s.io/ListenerSet`: further listeners of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSet {
    /// Gateway that the listeners are added to.
    pub parent_ref: ParentGateway,
    /// Listeners that the set adds to those of the Gateway.
    pub listeners: Vec<Listener>,
}

/// The Gateway of a ListenerSet (`ParentGatewayReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentGateway {
    /// `gateway.networking.k8s.io` by default; a set with another one attaches to nothing.
    pub group: String,
    /// `Gateway` by default; a set with another one attaches to nothing.
    pub kind: String,
    /// `metadata.name` of the Gateway, whose `allowedListeners` must permit the set.
    pub name: String,
    /// Namespace of the parent; unset is the ListenerSet's namespace.
    pub namespace: Option<String>,
}

impl Default for ParentGateway {
    fn default() -> Self {
        Self {
            group: gateway_group(),
            kind: gateway_kind(),
            name: String::new(),
            namespace: None,
        }
    }
}
