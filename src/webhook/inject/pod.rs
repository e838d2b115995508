//! Reading and changing pods as JSON.
//!
//! Pods stay JSON from end to end, so that fields which are newer than this program are kept. What has not the shape that
//! Kubernetes demands counts as absent: the API server has checked it before, or will refuse it after.

use serde_json::{Map, Value};

use super::error::InjectError;

/// Checks that a value is a pod as far as injection looks into it.
///
/// # Errors
/// With what is not as it must be.
pub(super) fn check(pod: &Value) -> Result<(), InjectError> {
    let fault = |what: &str| Err(InjectError::NotAPod(what.to_owned()));
    if !pod.is_object() {
        return fault("it is not a JSON object");
    }
    for field in ["metadata", "spec"] {
        if !pod.get(field).is_none_or(|part| part.is_object() || part.is_null()) {
            return fault(&format!("{field} is not an object"));
        }
    }
    for path in ["/metadata/labels", "/metadata/annotations"] {
        match pod.pointer(path) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) if map.values().all(Value::is_string) => {}
            Some(_) => return fault(&format!("{path} is not a map of texts")),
        }
    }
    for list in ["containers", "initContainers", "volumes"] {
        match pod.get("spec").and_then(|spec| spec.get(list)) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) if items.iter().all(|item| !name(item).is_empty()) => {}
            Some(_) => return fault(&format!("spec.{list} is not a list of objects with names")),
        }
    }
    Ok(())
}

/// The labels.
pub(super) fn labels(pod: &Value) -> Option<&Map<String, Value>> {
    pod.get("metadata")?.get("labels")?.as_object()
}

/// The annotations.
pub(super) fn annotations(pod: &Value) -> Option<&Map<String, Value>> {
    pod.get("metadata")?.get("annotations")?.as_object()
}

/// The value of a label.
pub(super) fn label<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    labels(pod)?.get(name)?.as_str()
}

/// The value of an annotation.
pub(super) fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    annotations(pod)?.get(name)?.as_str()
}

/// A text of the metadata, such as `name`; empty where there is none.
pub(super) fn meta<'a>(pod: &'a Value, field: &str) -> &'a str {
    pod.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// The name of a container or volume; empty where it has none.
pub(super) fn name(item: &Value) -> &str {
    item.get("name").and_then(Value::as_str).unwrap_or_default()
}
