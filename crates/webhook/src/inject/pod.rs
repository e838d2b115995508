//! Access to pods as JSON.
//!
//! Pods remain JSON throughout, so that unknown fields of newer Kubernetes versions are preserved.
//! Values of the wrong type are treated as absent, because the API server validates pods before or
//! after the injection.

use serde_json::{Map, Value};

use super::error::InjectError;

/// A list of containers in a pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// `spec.containers`.
    Containers,
    /// `spec.initContainers`.
    Init,
}

impl List {
    /// The field's name.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Init => "initContainers",
        }
    }
}

/// Checks the types of the fields that injection reads.
///
/// # Errors
/// Names the first field with a wrong type.
pub(super) fn check(pod: &Value) -> Result<(), InjectError> {
    let fault = |what: &str| Err(InjectError::NotAPod(what.to_owned()));
    if !pod.is_object() {
        return fault("it is not a JSON object");
    }

    for field in ["metadata", "spec"] {
        if !pod
            .get(field)
            .is_none_or(|part| part.is_object() || part.is_null())
        {
            return fault(&format!("{field} is not an object"));
        }
    }

    for path in ["/metadata/labels", "/metadata/annotations"] {
        match pod.pointer(path) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) if map.values().all(Value::is_string) => {}
            Some(_) => return fault(&format!("{path} is not a map of strings")),
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

pub(super) fn labels(pod: &Value) -> Option<&Map<String, Value>> {
    pod.get("metadata")?.get("labels")?.as_object()
}

pub(super) fn annotations(pod: &Value) -> Option<&Map<String, Value>> {
    pod.get("metadata")?.get("annotations")?.as_object()
}

pub(super) fn label<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    labels(pod)?.get(name)?.as_str()
}

pub(super) fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    annotations(pod)?.get(name)?.as_str()
}

/// A text field of the metadata, such as `name`; empty if absent.
pub(super) fn meta<'a>(pod: &'a Value, field: &str) -> &'a str {
    pod.get("metadata")
        .and_then(|meta| meta.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn containers(pod: &Value, list: List) -> &[Value] {
    let found = pod
        .get("spec")
        .and_then(|spec| spec.get(list.field()))
        .and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// The name of a container or volume; empty if absent.
pub(super) fn name(item: &Value) -> &str {
    item.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The first container with a name in a list of containers.
pub(super) fn find<'a>(containers: &'a [Value], wanted: &str) -> Option<&'a Value> {
    containers
        .iter()
        .find(|container| name(container) == wanted)
}

/// The first container with a name, in the containers or else in the init containers.
pub(super) fn find_in_pod<'a>(pod: &'a Value, wanted: &str) -> Option<&'a Value> {
    find(containers(pod, List::Containers), wanted)
        .or_else(|| find(containers(pod, List::Init), wanted))
}

/// A value as a mutable object; replaces any other value with an empty object.
pub(super) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object")
}

/// A member as a mutable object; created if absent.
pub(super) fn member_map<'a>(
    fields: &'a mut Map<String, Value>,
    field: &str,
) -> &'a mut Map<String, Value> {
    as_map(fields.entry(field).or_insert(Value::Null))
}

/// The annotations, mutable.
pub(super) fn annotations_mut(pod: &mut Value) -> &mut Map<String, Value> {
    member_map(member_map(as_map(pod), "metadata"), "annotations")
}

/// The labels, mutable.
pub(super) fn labels_mut(pod: &mut Value) -> &mut Map<String, Value> {
    member_map(member_map(as_map(pod), "metadata"), "labels")
}

/// The containers of a list, mutable, if the list exists.
pub(super) fn containers_mut(pod: &mut Value, list: List) -> Option<&mut Vec<Value>> {
    pod.get_mut("spec")?.get_mut(list.field())?.as_array_mut()
}

/// The first container with a name, mutable: in the containers or else in the init containers.
pub(super) fn find_in_pod_mut<'a>(pod: &'a mut Value, wanted: &str) -> Option<&'a mut Value> {
    let list = [List::Containers, List::Init]
        .into_iter()
        .find(|list| find(containers(pod, *list), wanted).is_some())?;
    containers_mut(pod, list)?
        .iter_mut()
        .find(|container| name(container) == wanted)
}
