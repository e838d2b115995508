//! The namespaces that a Gateway allows: those of routes and ListenerSets that may attach.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_api::kubernetes;
use navarch_api::mesh::LabelSelector;
use navarch_api::names::Namespace;
use navarch_api::object::Object;
use navarch_api::text_map::TextMap;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The label with the namespace's name, which the API server sets.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The labels of all namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllNamespaces;

impl Query for AllNamespaces {
    type Value = Vec<(Arc<str>, TextMap)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let all = view.list_all::<kubernetes::Namespace>();
        all.map(|namespace| {
            (
                namespace.meta.key.name.clone(),
                with_name(namespace.meta.labels.clone(), &namespace.meta.key.name),
            )
        })
        .collect()
    }
}

/// Labels including that of the name, which every namespace has.
fn with_name(mut labels: TextMap, name: &Arc<str>) -> TextMap {
    if labels.get(NAME_LABEL) != Some(name) {
        labels.insert(Arc::from(NAME_LABEL), name.clone());
    }
    labels
}

/// The hosts of a listener for its server: `namespace/host` for each namespace whose routes may
/// attach.
pub(super) fn hosts_of(view: &View<'_>, own: &Namespace, listener: &Listener) -> Vec<String> {
    let host = listener.hostname.as_deref().unwrap_or("*");
    let from = &listener.allowed_routes.namespaces;
    let namespaces: BTreeSet<String> = match (from.from.as_str(), &from.selector) {
        ("Same", _) => [own.to_string()].into(),
        ("All", _) | (_, None) => ["*".to_owned()].into(),
        (_, Some(selector)) => {
            let all = view.get(&AllNamespaces);
            let selected = all
                .iter()
                .filter(|(_, labels)| is_valid(selector) && selector.selects(labels));
            selected.map(|(name, _)| name.to_string()).collect()
        }
    };

    // A server needs a host; one of the namespace `~` matches no route.
    let namespaces = if namespaces.is_empty() {
        ["~".to_owned()].into()
    } else {
        namespaces
    };

    namespaces
        .into_iter()
        .map(|namespace| format!("{namespace}/{host}"))
        .collect()
}

/// Whether a selector is valid: an invalid one selects nothing.
fn is_valid(selector: &LabelSelector) -> bool {
    selector
        .match_expressions
        .iter()
        .all(|condition| match condition.operator.as_str() {
            "In" | "NotIn" => !condition.values.is_empty(),
            "Exists" | "DoesNotExist" => condition.values.is_empty(),
            _ => false,
        })
}

/// Whether ListenerSets of a namespace may attach to a Gateway.
pub(super) fn takes_listener_sets_of(
    view: &View<'_>,
    gateway: &Object<KubernetesGateway>,
    namespace: &Namespace,
) -> bool {
    let Some(allowed) = &gateway.spec.allowed_listeners else {
        return false;
    };
    match (
        allowed.namespaces.from.as_str(),
        &allowed.namespaces.selector,
    ) {
        ("All", _) => true,
        ("Same", _) => *namespace == gateway.meta.key.namespace,
        ("Selector", Some(selector)) => view.namespace_labels(namespace).is_some_and(|labels| {
            is_valid(selector)
                && selector.selects(&with_name(labels.clone(), &Arc::from(namespace.as_str())))
        }),
        _ => false,
    }
}
