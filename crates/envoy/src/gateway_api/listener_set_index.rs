//! Which ListenerSets reference a Gateway.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::gateway_api::{self, ListenerSet};
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The ListenerSets of all Gateways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ListenerSetIndex;

/// The ListenerSets of one Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ListenerSetsOf(NamespacedName);

/// The Gateway that the ListenerSet of this name references: [`parent_of`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ParentOf(NamespacedName);

impl Query for ParentOf {
    type Value = Option<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.object::<ListenerSet>(&self.0)
            .and_then(|set| parent_of(set))
    }
}

/// The Gateway that a ListenerSet references.
pub(super) fn parent_of(set: &Object<ListenerSet>) -> Option<NamespacedName> {
    let parent = &set.spec.parent_ref;
    let is_gateway = parent.group == gateway_api::GROUP && parent.kind == "Gateway";
    let namespace = parent
        .namespace
        .as_deref()
        .unwrap_or(set.meta.key.namespace.as_str());
    is_gateway.then(|| NamespacedName::new(namespace, &parent.name))
}

impl Query for ListenerSetIndex {
    type Value = BTreeMap<NamespacedName, Arc<Vec<NamespacedName>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut index: BTreeMap<NamespacedName, Vec<NamespacedName>> = BTreeMap::new();
        for name in view.names::<ListenerSet>() {
            if let Some(gateway) = &*view.get(&ParentOf(name.clone())) {
                index.entry(gateway.clone()).or_default().push(name.clone());
            }
        }
        index
            .into_iter()
            .map(|(gateway, sets)| (gateway, Arc::new(sets)))
            .collect()
    }
}

impl Query for ListenerSetsOf {
    type Value = Arc<Vec<NamespacedName>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ListenerSetIndex)
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

/// The ListenerSets that reference a Gateway, by name.
pub(super) fn listener_sets_of(
    view: &View<'_>,
    gateway: &NamespacedName,
) -> Arc<Vec<NamespacedName>> {
    (*view.get(&ListenerSetsOf(gateway.clone()))).clone()
}
