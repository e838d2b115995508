//! The status of InferencePools, for each parent of a route to them (istiod's
//! `calculateInferencePoolStatus`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::gateway_api::condition::{Condition, ConditionStatus, Conditions};
use crate::gateway_api::inference_pools::routes_to;
use crate::gateway_api::parents::ParentsOf;
use crate::gateway_api::settings::ApiSettings;
use navarch_api::gateway_api::InferencePool;
use navarch_api::kubernetes::Service;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::view::View;

/// The status of a pool.
pub(super) fn status(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let pool = view
        .object::<InferencePool>(name)
        .filter(|_| view.get(&ApiSettings).api.inference)?;
    let mut parents: BTreeMap<NamespacedName, Condition> = BTreeMap::new();

    for route in routes_to(view, name) {
        let Some(common) = route.common(view) else {
            continue;
        };

        for attachment in view.get(&ParentsOf(route.clone())).iter() {
            let Some(reference) = common.parents.get(attachment.reference) else {
                continue;
            };

            // Parents of every kind are compared by name only: ListenerSets and Services are
            // reported as Gateways, too.
            let named = reference
                .namespace
                .as_deref()
                .filter(|named| !named.is_empty());
            let own = common.meta.key.namespace.as_str();
            let parent = NamespacedName::new(named.unwrap_or(own), &reference.name);

            let accepted = match &attachment.denied {
                None => {
                    let message = "Referenced by an HTTPRoute accepted by the parentRef Gateway";
                    Condition::new(ConditionStatus::True, "Accepted", message)
                }
                Some(denial) => {
                    let message = format!(
                        "Referenced HTTPRoute {} not accepted by Gateway {parent}: {}",
                        route.name, denial.message
                    );
                    Condition::new(ConditionStatus::False, "HTTPRouteNotAccepted", message)
                }
            };

            match parents.get_mut(&parent) {
                Some(known) if attachment.denied.is_none() => *known = accepted,
                Some(_) => {}
                None => _ = parents.insert(parent, accepted),
            }
        }
    }

    let resolved = resolved(view, pool);
    let entries = parents.into_iter().map(|(parent, accepted)| {
        let mut conditions = Conditions::default();
        conditions.set("Accepted", accepted);
        conditions.set("ResolvedRefs", resolved.clone());
        json!({
            // istiod writes the group of its own Gateways, and clients depend on it.
            "parentRef": {
                "group": "networking.istio.io",
                "kind": "Gateway",
                "namespace": parent.namespace,
                "name": &*parent.name,
            },
            "conditions": conditions.to_json(pool.meta.generation),
        })
    });

    let entries: Vec<Value> = entries.collect();

    // As in istiod, an empty list is omitted.
    let entries = if entries.is_empty() {
        Value::Null
    } else {
        Value::Array(entries)
    };

    Some(json!({ "parents": entries }))
}

/// Whether the pool's endpoint picker exists.
fn resolved(view: &View<'_>, pool: &Object<InferencePool>) -> Condition {
    let bad =
        |message: String| Condition::new(ConditionStatus::False, "InvalidExtensionRef", message);
    let Some(picker) = &pool.spec.endpoint_picker_ref else {
        return bad("ExtensionRef not defined".to_owned());
    };

    if picker.kind != "Service" {
        return bad(format!("Unsupported ExtensionRef kind {}", picker.kind));
    }

    if picker.name.is_empty() {
        return bad("ExtensionRef not defined".to_owned());
    }

    match view.object::<Service>(&NamespacedName::new(
        pool.meta.key.namespace.as_str(),
        &picker.name,
    )) {
        Some(_) => Condition::new(
            ConditionStatus::True,
            "ResolvedRefs",
            "Referenced ExtensionRef resolved successfully",
        ),
        None => bad(format!("Referenced ExtensionRef not found {}", picker.name)),
    }
}
