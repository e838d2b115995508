//! Serializes injected containers like Kubernetes' own types: without zero values.

use serde_json::{Map, Value};

use super::pod;
use super::quantity::canonical;

/// Numbers and booleans of containers that are omitted if zero or false.
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

/// Maps of containers that are omitted if empty. Other empty objects are significant, such as
/// `emptyDir`.
const EMPTY_MAP_IS_ABSENT: [&str; 2] = ["limits", "requests"];

/// Strings of containers that are kept if empty; `service` is the service of a gRPC probe.
const KEPT_IF_EMPTY: [&str; 3] = ["name", "mountPath", "service"];

/// Removes zero values from a container.
pub(super) fn container(container: &mut Value) {
    let Value::Object(fields) = container else {
        return;
    };
    remove_zero_values(fields);
    fields
        .entry("resources")
        .or_insert_with(|| Value::Object(Map::new()));
}

/// Removes a pod's empty labels, if the pod had no labels before the injection.
pub(super) fn labels(injected: &mut Value, before: &Value) {
    if pod::labels(before).is_none()
        && let Some(metadata) = injected.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata
            .get("labels")
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
    {
        metadata.remove("labels");
    }
}

/// Removes zero values from the fields of an object.
fn remove_zero_values(fields: &mut Map<String, Value>) {
    for (name, value) in fields.iter_mut() {
        match value {
            Value::Object(quantities) if EMPTY_MAP_IS_ABSENT.contains(&name.as_str()) => {
                normalise(quantities)
            }
            Value::Object(fields) => remove_zero_values(fields),
            Value::Array(items) => items
                .iter_mut()
                .filter_map(Value::as_object_mut)
                .for_each(remove_zero_values),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    fields.retain(|name, value| is_kept(name, value));
}

/// Whether a field is kept.
fn is_kept(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty() || KEPT_IF_EMPTY.contains(&name),
        Value::Bool(value) => *value || !ZERO_IS_ABSENT.contains(&name),
        Value::Number(number) => number.as_i64() != Some(0) || !ZERO_IS_ABSENT.contains(&name),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty() || !EMPTY_MAP_IS_ABSENT.contains(&name),
    }
}

/// Converts quantities to their canonical form.
fn normalise(quantities: &mut Map<String, Value>) {
    for value in quantities.values_mut() {
        match value {
            Value::String(text) => *text = canonical(text),
            Value::Number(number) => *value = Value::String(canonical(&number.to_string())),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
}
