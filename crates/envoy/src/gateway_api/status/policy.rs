//! The status of backend policies, for each target and each Gateway that routes to it.

use serde_json::{Map, Value, json};

use crate::gateway_api::classes::MESH_CONTROLLER;
use crate::gateway_api::settings::ApiSettings;
use crate::gateway_api::tls_policies::{PolicyForms, TlsPolicyForms};
use crate::gateway_api::traffic_policies::{BackendForms, TrafficPolicyForms};
use navarch_api::gateway_api::{
    self, BackendTlsPolicy, PolicyTarget, XBackend, XBackendTrafficPolicy,
};
use navarch_api::object::NamespacedName;
use navarch_push::view::View;

/// Names and limits of the status list of a kind.
struct StatusFields {
    list: &'static str,
    /// The reference in each of its items.
    reference: &'static str,
    /// Whether Gateways are referenced with their namespaces.
    with_namespaces: bool,
}

const POLICY: StatusFields = StatusFields {
    list: "ancestors",
    reference: "ancestorRef",
    with_namespaces: false,
};
const BACKEND: StatusFields = StatusFields {
    list: "parents",
    reference: "parentRef",
    with_namespaces: true,
};

/// The status of a BackendTLSPolicy.
pub(super) fn tls(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let generation = view.object::<BackendTlsPolicy>(name)?.meta.generation;
    let forms = view.get(&TlsPolicyForms(name.clone()));
    Some(write(view, forms.as_ref().as_ref()?, generation, &POLICY))
}

/// The status of an XBackendTrafficPolicy.
pub(super) fn traffic(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let generation = view.object::<XBackendTrafficPolicy>(name)?.meta.generation;
    let forms = view.get(&TrafficPolicyForms(name.clone()));
    Some(write(view, forms.as_ref().as_ref()?, generation, &POLICY))
}

/// The status of an XBackend.
pub(super) fn backend(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let generation = view.object::<XBackend>(name)?.meta.generation;
    let forms = view.get(&BackendForms(name.clone()));
    Some(write(view, forms.as_ref().as_ref()?, generation, &BACKEND))
}

/// The status of a translated policy.
fn write(view: &View<'_>, forms: &PolicyForms, generation: i64, words: &StatusFields) -> Value {
    let entry = |reference: Value, controller: &str, conditions: Value| {
        let members = [
            (words.reference.to_owned(), reference),
            ("controllerName".to_owned(), json!(controller)),
            ("conditions".to_owned(), conditions),
        ];
        Value::Object(members.into_iter().collect())
    };

    let mut entries: Vec<Value> = forms
        .targets
        .iter()
        .map(|(target, conditions)| {
            entry(
                target_ref(target),
                MESH_CONTROLLER,
                conditions.to_json(generation),
            )
        })
        .collect();

    let settings = view.get(&ApiSettings);

    for gateway in &forms.gateways {
        let mut reference = Map::new();
        reference.insert("group".to_owned(), json!(gateway_api::GROUP));
        reference.insert("kind".to_owned(), json!("Gateway"));
        reference.insert("name".to_owned(), json!(&*gateway.name));
        if words.with_namespaces {
            reference.insert("namespace".to_owned(), json!(gateway.namespace));
        }
        let conditions = forms.conditions.to_json(generation);
        entries.push(entry(
            Value::Object(reference),
            &settings.api.controller,
            conditions,
        ));
    }

    Value::Object(
        [(words.list.to_owned(), Value::Array(entries))]
            .into_iter()
            .collect(),
    )
}

/// A target reference as JSON.
fn target_ref(target: &PolicyTarget) -> Value {
    let mut written = Map::new();
    written.insert("group".to_owned(), json!(target.group));
    written.insert("kind".to_owned(), json!(target.kind));
    written.insert("name".to_owned(), json!(target.name));
    written.extend(
        target
            .section_name
            .as_ref()
            .map(|section| ("sectionName".to_owned(), json!(section))),
    );
    Value::Object(written)
}
