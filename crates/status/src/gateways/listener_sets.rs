//! ListenerSets that may attach to a Gateway.

use jiff::Timestamp;
use navarch_api::gateway_api::{KubernetesGateway, Listener, ListenerSet};
use navarch_api::object::NamespacedName;
use navarch_api::text_map::TextMap;

/// The fields of a ListenerSet that affect the ports of Services.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AttachedSet {
    pub(super) parent: NamespacedName,
    /// Its creation time.
    pub(super) created: Option<Timestamp>,
    pub(super) listeners: Vec<Listener>,
}

impl AttachedSet {
    pub(super) fn of(spec: ListenerSet, namespace: &str, created: Option<Timestamp>) -> Self {
        let parent = spec.parent_ref;
        let namespace = parent.namespace.as_deref().unwrap_or(namespace);
        Self {
            parent: NamespacedName::new(namespace, &parent.name),
            created,
            listeners: spec.listeners,
        }
    }
}

/// Whether a Gateway in the namespace `own` accepts ListenerSets of a namespace with these labels,
/// `None` if unknown.
pub(super) fn accepts(
    gateway: &KubernetesGateway,
    own: &str,
    namespace: &str,
    labels: Option<&TextMap>,
) -> bool {
    let Some(allowed) = &gateway.allowed_listeners else {
        return false;
    };
    match allowed.namespaces.from.as_str() {
        "All" => true,
        "Same" => own == namespace,
        "Selector" => allowed
            .namespaces
            .selector
            .as_ref()
            .zip(labels)
            .is_some_and(|(all, labels)| all.selects(labels)),
        _ => false,
    }
}
