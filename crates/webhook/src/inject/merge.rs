//! Laying one part of a pod over another, as Kubernetes' strategic merge does.
//!
//! Lists of things with a key (containers by name, ports by number) are merged item by item, other lists replaced, and a
//! `null` unsets. The order is the overlay's, with what only the pod has kept in its own order behind or between
//! (`k8s.io/apimachinery/pkg/util/strategicpatch`).

use serde_json::{Map, Value};

use super::error::InjectError;
use navarch_api::hash::KeyedMap;

/// Says of a map or an item how it is to be merged.
const DIRECTIVE: &str = "$patch";

/// Has the names of the fields of a map that are kept; all others go.
const RETAIN: &str = "$retainKeys";

/// Begins the name of a list of values that are taken out of another list; behind it stands that list's name.
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";

/// The merge key of a list of this name; `None` is a list that is replaced as a whole.
pub(super) type Keys = fn(&str) -> Option<&'static str>;

/// Lays an overlay over a pod or a part of one.
///
/// # Errors
/// When an item of a list that is merged by key has no key.
pub(super) fn merge(target: &mut Value, overlay: Value) -> Result<(), InjectError> {
    merge_by(target, overlay, key_in_pod)
}

/// Lays an overlay over an object whose lists have these keys.
///
/// # Errors
/// When an item of a list that is merged by key has no key.
pub(super) fn merge_by(target: &mut Value, overlay: Value, keys: Keys) -> Result<(), InjectError> {
    match (target, overlay) {
        (Value::Object(target), Value::Object(overlay)) => merge_maps(target, overlay, keys),
        (target, overlay) => {
            *target = clean(overlay);
            Ok(())
        }
    }
}

/// Lays the fields of an object over those of another.
fn merge_maps(target: &mut Map<String, Value>, mut overlay: Map<String, Value>, keys: Keys) -> Result<(), InjectError> {
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
            (Some(Value::Array(under)), Value::Array(over)) => merge_lists(&field, under, over, keys)?,
            (_, over) => {
                target.insert(field, clean(over));
            }
        }
    }
    Ok(())
}

/// The keys of the lists of pods, and of objects that hold pods.
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

/// Lays a list over another.
fn merge_lists(field: &str, target: &mut Vec<Value>, overlay: Vec<Value>, keys: Keys) -> Result<(), InjectError> {
    if field == "finalizers" {
        let new: Vec<_> = overlay.into_iter().filter(|item| !target.contains(item)).collect();
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
            return Err(InjectError::Merge(format!("an item of {field} has no {key}")));
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

/// Obeys items that are directives rather than items, and gives the rest.
fn obey_directives(key: &str, target: &mut Vec<Value>, mut overlay: Vec<Value>) -> Vec<Value> {
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    if overlay.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        target.clear();
    }
    for item in overlay.iter().filter(|item| directive(item).as_deref() == Some("delete")) {
        target.retain(|other| other.get(key) != item.get(key));
    }
    overlay.retain(|item| directive(item).is_none());
    overlay
}

/// Puts merged items in order: those of the overlay in its order, the others before the first that they stood before.
fn interleave(
    items: Vec<Value>,
    key: &str,
    before: &KeyedMap<String, usize>,
    order: &KeyedMap<String, usize>,
) -> Vec<Value> {
    let keyed = items.into_iter().map(|item| (item.get(key).map(key_text).unwrap_or_default(), item));
    let (mut laid, own): (Vec<_>, Vec<_>) = keyed.partition(|(name, _)| order.contains_key(name));
    laid.sort_by_key(|(name, _)| order.get(name).copied());
    let mut merged = Vec::with_capacity(laid.len() + own.len());
    let mut own = own.into_iter().peekable();
    for (name, item) in laid {
        let at = before.get(&name);
        while own.peek().is_some_and(|(other, _)| at.zip(before.get(other)).is_some_and(|(at, other)| other < at)) {
            merged.extend(own.next().map(|(_, item)| item));
        }
        merged.push(item);
    }
    merged.extend(own.map(|(_, item)| item));
    merged
}

/// Where each key first stands in a list.
fn positions(items: &[Value], key: &str) -> KeyedMap<String, usize> {
    let mut positions = KeyedMap::default();
    for (at, item) in items.iter().enumerate() {
        if let Some(value) = item.get(key) {
            positions.entry(key_text(value)).or_insert(at);
        }
    }
    positions
}

/// A key as text: names are texts, ports numbers.
fn key_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value without nulls and directives.
pub(super) fn clean(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(clean_map(fields)),
        Value::Array(items) => {
            let kept = items.into_iter().filter(|item| item.get(DIRECTIVE).and_then(Value::as_str) != Some("delete"));
            Value::Array(kept.map(clean).collect())
        }
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
    }
}

/// An object without nulls and directives.
fn clean_map(fields: Map<String, Value>) -> Map<String, Value> {
    let kept = fields.into_iter().filter(|(field, value)| !value.is_null() && !field.starts_with('$'));
    kept.map(|(field, value)| (field, clean(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Lays one over the other.
    fn merged(mut target: Value, overlay: Value) -> Value {
        merge(&mut target, overlay).unwrap();
        target
    }

    #[test]
    fn items_with_keys_are_merged_and_stand_in_the_order_of_the_overlay() {
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
        let overlay = json!({"volumes": [{"name": "v", "emptyDir": null}], "args": ["c"], "none": null});
        let expected = json!({"volumes": [{"name": "v", "csi": {"driver": "d"}}], "args": ["c"]});
        assert_eq!(merged(pod, overlay), expected);
    }

    #[test]
    fn directives_delete_and_replace() {
        let pod = json!({"env": [{"name": "A"}, {"name": "B"}], "securityContext": {"runAsUser": 1}});
        let overlay = json!({
            "env": [{"name": "A", "$patch": "delete"}],
            "securityContext": {"$patch": "replace", "privileged": false}
        });
        assert_eq!(merged(pod, overlay), json!({"env": [{"name": "B"}], "securityContext": {"privileged": false}}));
        assert!(merge(&mut json!({"env": [{"name": "A"}]}), json!({"env": [{}]})).is_err());
        let pod = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}, "finalizers": ["a", "b"]});
        let overlay = json!({
            "strategy": {"$retainKeys": ["type"], "type": "Recreate"}, "$deleteFromPrimitiveList/finalizers": ["a"]
        });
        assert_eq!(merged(pod, overlay), json!({"strategy": {"type": "Recreate"}, "finalizers": ["b"]}));
    }
}
