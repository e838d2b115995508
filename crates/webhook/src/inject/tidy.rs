//! Injected containers as Kubernetes' own types are written: without what has its zero value.

use serde_json::{Map, Value};

use super::pod;
use super::quantity::canonical;

/// Numbers and switches of containers whose zero says nothing.
const ZERO_IS_ABSENT: [&str; 12] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "hostPort",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "weight",
    "expirationSeconds",
];

/// Maps of containers that are left out when they are empty. Other empty objects say something, such as `emptyDir`.
const EMPTY_MAP_IS_ABSENT: [&str; 2] = ["limits", "requests"];

/// Texts of containers that stand even when they are empty; `service` is that of a gRPC probe.
const TEXT_STANDS: [&str; 3] = ["name", "mountPath", "service"];

/// Tidies a container.
pub(super) fn container(container: &mut Value) {
    let Value::Object(fields) = container else { return };
    tidy(fields);
    fields.entry("resources").or_insert_with(|| Value::Object(Map::new()));
}

/// Leaves out a pod's labels where there are none, and were none before.
pub(super) fn labels(injected: &mut Value, before: &Value) {
    if pod::labels(before).is_none()
        && let Some(metadata) = injected.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("labels").and_then(Value::as_object).is_some_and(Map::is_empty)
    {
        metadata.remove("labels");
    }
}

/// Tidies the fields of an object.
fn tidy(fields: &mut Map<String, Value>) {
    for (name, value) in fields.iter_mut() {
        match value {
            Value::Object(quantities) if EMPTY_MAP_IS_ABSENT.contains(&name.as_str()) => normalise(quantities),
            Value::Object(fields) => tidy(fields),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(tidy),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    fields.retain(|name, value| stands(name, value));
}

/// Whether a field says anything.
fn stands(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty() || TEXT_STANDS.contains(&name),
        Value::Bool(value) => *value || !ZERO_IS_ABSENT.contains(&name),
        Value::Number(number) => number.as_i64() != Some(0) || !ZERO_IS_ABSENT.contains(&name),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty() || !EMPTY_MAP_IS_ABSENT.contains(&name),
    }
}

/// Writes quantities in their canonical form.
fn normalise(quantities: &mut Map<String, Value>) {
    for value in quantities.values_mut() {
        match value {
            Value::String(text) => *text = canonical(text),
            Value::Number(number) => *value = Value::String(canonical(&number.to_string())),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
}
