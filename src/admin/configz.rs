//! `/debug/configz` and `/debug/mesh`: the configuration in force.

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::object::Object;
use navarch_store::{Objects, Stored};

/// All of Istio's objects as Kubernetes objects.
pub(super) async fn configz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(context) = state.push.inspect(|inspect| inspect.engine.context().clone()).await else {
        return reply::ended();
    };
    let objects = &context.objects;
    let mut all = Vec::new();
    describe(objects, &objects.destination_rules, &mut all);
    describe(objects, &objects.gateways, &mut all);
    describe(objects, &objects.peer_authentications, &mut all);
    describe(objects, &objects.service_entries, &mut all);
    describe(objects, &objects.sidecars, &mut all);
    describe(objects, &objects.virtual_services, &mut all);
    describe(objects, &objects.workload_entries, &mut all);
    reply::json(&parameters, &Value::Array(all))
}

/// The mesh config with all defaults.
pub(super) async fn mesh(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(context) = state.push.inspect(|inspect| inspect.engine.context().clone()).await else {
        return reply::ended();
    };
    reply::json(&parameters, &json!(context.mesh.config))
}

/// Adds the objects of one kind.
fn describe<T: Stored + Serialize>(_: &Objects, table: &navarch_store::Table<T>, all: &mut Vec<Value>) {
    all.extend(table.iter().map(|object| one(object)));
}

/// One object.
fn one<T: Stored + Serialize>(object: &Object<T>) -> Value {
    let meta = &object.meta;
    json!({
        "kind": T::KIND.as_str(),
        "apiVersion": format!("{}/v1", T::KIND.group()),
        "metadata": {
            "name": &*meta.key.name,
            "namespace": meta.key.namespace,
            "labels": meta.labels,
            "annotations": meta.annotations,
            "creationTimestamp": meta.created.map(|created| created.to_string()),
            "resourceVersion": &*meta.resource_version,
        },
        "spec": object.spec,
    })
}
