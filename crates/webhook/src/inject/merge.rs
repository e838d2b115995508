//! Merges an overlay into a pod or a part of a pod by Kubernetes' strategic merge.
//!
//! Lists with a merge key (containers by name, ports by number) are merged item by item, other
//! lists are replaced, and `null` removes a field. Items are in the overlay's order; the pod's
//! other items keep their own order between or after them
//! (`k8s.io/apimachinery/pkg/util/strategicpatch`).

use serde_json::{Map, Value};

use super::error::InjectError;
use navarch_tables::hash::KeyedMap;

/// The directive of a map or an item about how to merge it.
const DIRECTIVE: &str = "$patch";

/// The directive that lists the fields to keep; all other fields are removed.
const RETAIN: &str = "$retainKeys";

/// The prefix of a directive that lists values to delete; the name of the affected list follows.
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";

/// Returns the merge key of a list with this name; `None` replaces the list.
pub(super) type Keys = fn(&str) -> Option<&'static str>;

/// Merges an overlay into a pod or a part of a pod.
///
/// # Errors
/// When an item of a list with a merge key has no key.
pub(super) fn merge(target: &mut Value, overlay: Value) -> Result<(), InjectError> {
    merge_by(target, overlay, key_in_pod)
}

/// Merges an overlay into an object whose lists have these keys.
///
/// # Errors
/// When an item of a list with a merge key has no key.
pub(super) fn merge_by(target: &mut Value, overlay: Value, keys: Keys) -> Result<(), InjectError> {
    match (target, overlay) {
        (Value::Object(target), Value::Object(overlay)) => merge_maps(target, overlay, keys),
        (target, overlay) => {
            *target = clean(overlay);
            Ok(())
        }
    }
}

/// Merges the fields of an object into another object.
fn merge_maps(
    target: &mut Map<String, Value>,
    mut overlay: Map<String, Value>,
    keys: Keys,
) -> Result<(), InjectError> {
    match overlay.remove(DIRECTIVE).as_ref().and_then(Value::as_str) {
        Some("replace") => {
            *target = clean_map(overlay);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some(_) | None => {}
    }

    if let Some(Value::Array(kept)) = overlay.remove(RETAIN) {
        target.retain(|field, _| kept.iter().any(|kept| kept.as_str() == Some(field)));
    }

    for (field, over) in overlay {
        if let Some(list) = field.strip_prefix(DELETE_VALUES) {
            if let (Some(Value::Array(under)), Value::Array(gone)) = (target.get_mut(list), over) {
                under.retain(|item| !gone.contains(item));
            }
            continue;
        }

        if field.starts_with('$') {
            continue;
        }

        match (target.get_mut(&field), over) {
            (_, Value::Null) => {
                target.remove(&field);
            }
            (Some(Value::Object(under)), Value::Object(over)) => merge_maps(under, over, keys)?,
            (Some(Value::Array(under)), Value::Array(over)) => {
                merge_lists(&field, under, over, keys)?
            }
            (_, over) => {
                target.insert(field, clean(over));
            }
        }
    }

    Ok(())
}

/// The merge keys of lists in pods, and in objects that contain pods.
pub(super) fn key_in_pod(field: &str) -> Option<&'static str> {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "ports" => Some("containerPort"),
        "hostAliases" => Some("ip"),
        "topologySpreadConstraints" => Some("topologyKey"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

/// Merges a list into another list.
fn merge_lists(
    field: &str,
    target: &mut Vec<Value>,
    overlay: Vec<Value>,
    keys: Keys,
) -> Result<(), InjectError> {
    if field == "finalizers" {
        let new: Vec<_> = overlay
            .into_iter()
            .filter(|item| !target.contains(item))
            .collect();
        target.extend(new);
        return Ok(());
    }

    let Some(key) = keys(field) else {
        *target = overlay.into_iter().map(clean).collect();
        return Ok(());
    };

    let overlay = obey_directives(key, target, overlay);
    let before = positions(target, key);
    let mut index = before.clone();
    let mut order = KeyedMap::default();

    for item in overlay {
        let Some(name) = item.get(key).map(key_text) else {
            return Err(InjectError::Merge(format!(
                "an item of {field} has no {key}"
            )));
        };

        let next = order.len();
        order.entry(name.clone()).or_insert(next);

        match index.get(&name).and_then(|at| target.get_mut(*at)) {
            Some(under) => merge_by(under, item, keys)?,
            None => {
                index.insert(name, target.len());
                target.push(clean(item));
            }
        }
    }

    *target = interleave(std::mem::take(target), key, &before, &order);
    Ok(())
}

/// Applies items that are directives, and returns the other items.
fn obey_directives(key: &str, target: &mut Vec<Value>, mut overlay: Vec<Value>) -> Vec<Value> {
    let directive = |item: &Value| {
        item.get(DIRECTIVE)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    if overlay
        .iter()
        .any(|item| directive(item).as_deref() == Some("replace"))
    {
        target.clear();
    }
    for item in overlay
        .iter()
        .filter(|item| directive(item).as_deref() == Some("delete"))
    {
        target.retain(|other| other.get(key) != item.get(key));
    }
    overlay.retain(|item| directive(item).is_none());

    overlay
}

/// Orders merged items: the overlay's items in the overlay's order, the others before the first
/// item that followed them.
fn interleave(
    items: Vec<Value>,
    key: &str,
    before: &KeyedMap<String, usize>,
    order: &KeyedMap<String, usize>,
) -> Vec<Value> {
    let keyed = items
        .into_iter()
        .map(|item| (item.get(key).map(key_text).unwrap_or_default(), item));
    let (mut laid, own): (Vec<_>, Vec<_>) = keyed.partition(|(name, _)| order.contains_key(name));
    laid.sort_by_key(|(name, _)| order.get(name).copied());
    let mut merged = Vec::with_capacity(laid.len() + own.len());
    let mut own = own.into_iter().peekable();

    for (name, item) in laid {
        let at = before.get(&name);
        while own.peek().is_some_and(|(other, _)| {
            at.zip(before.get(other))
                .is_some_and(|(at, other)| other < at)
        }) {
            merged.extend(own.next().map(|(_, item)| item));
        }
        merged.push(item);
    }

    merged.extend(own.map(|(_, item)| item));
    merged
}

/// The first index of each key in a list.
fn positions(items: &[Value], key: &str) -> KeyedMap<String, usize> {
    let mut positions = KeyedMap::default();
    for (at, item) in items.iter().enumerate() {
        if let Some(value) = item.get(key) {
            positions.entry(key_text(value)).or_insert(at);
        }
    }
    positions
}

/// A key as text: names are strings, ports are numbers.
fn key_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Removes nulls and directives from a value.
pub(super) fn clean(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(clean_map(fields)),
        Value::Array(items) => {
            let kept = items
                .into_iter()
                .filter(|item| item.get(DIRECTIVE).and_then(Value::as_str) != Some("delete"));
            Value::Array(kept.map(clean).collect())
        }
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
    }
}

/// Removes nulls and directives from an object.
fn clean_map(fields: Map<String, Value>) -> Map<String, Value> {
    let kept = fields
        .into_iter()
        .filter(|(field, value)| !value.is_null() && !field.starts_with('$'));
    kept.map(|(field, value)| (field, clean(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Merges an overlay into a value.
    fn merged(mut target: Value, overlay: Value) -> Value {
        merge(&mut target, overlay).unwrap();
        target
    }

    #[test]
    fn keyed_items_are_merged_in_overlay_order() {
        let pod = json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C"}]});
        let overlay = json!({"env": [{"name": "X", "value": "x"}, {"name": "B", "value": "b"}]});
        let expected = json!({"env": [
            {"name": "X", "value": "x"}, {"name": "A", "value": "1"}, {"name": "B", "value": "b"}, {"name": "C"}
        ]});
        assert_eq!(merged(pod, overlay), expected);
    }

    #[test]
    fn nulls_unset_and_lists_without_keys_are_replaced() {
        let pod = json!({"volumes": [{"name": "v", "emptyDir": {}, "csi": {"driver": "d"}}], "args": ["a", "b"]});
        let overlay =
            json!({"volumes": [{"name": "v", "emptyDir": null}], "args": ["c"], "none": null});
        let expected = json!({"volumes": [{"name": "v", "csi": {"driver": "d"}}], "args": ["c"]});
        assert_eq!(merged(pod, overlay), expected);
    }

    #[test]
    fn directives_delete_and_replace() {
        let pod =
            json!({"env": [{"name": "A"}, {"name": "B"}], "securityContext": {"runAsUser": 1}});
        let overlay = json!({
            "env": [{"name": "A", "$patch": "delete"}],
            "securityContext": {"$patch": "replace", "privileged": false}
        });
        assert_eq!(
            merged(pod, overlay),
            json!({"env": [{"name": "B"}], "securityContext": {"privileged": false}})
        );

        assert!(merge(&mut json!({"env": [{"name": "A"}]}), json!({"env": [{}]})).is_err());
        let pod = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}, "finalizers": ["a", "b"]});
        let overlay = json!({
            "strategy": {"$retainKeys": ["type"], "type": "Recreate"}, "$deleteFromPrimitiveList/finalizers": ["a"]
        });
        assert_eq!(
            merged(pod, overlay),
            json!({"strategy": {"type": "Recreate"}, "finalizers": ["b"]})
        );
    }
}
