//! The canonical form in which two sets of resources are compared: unordered lists are sorted, and
//! values that differ between any two runs of istiod are replaced.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Resources by name, in canonical form.
#[must_use]
pub fn resources(list: &[Value]) -> BTreeMap<String, Value> {
    list.iter()
        .map(|value| canonical(value.clone()))
        .map(|value| (name(&value), value))
        .collect()
}

/// The JSON text of a value, as sort key.
fn key(value: &Value) -> String {
    value.to_string()
}

/// The name of a resource; its whole content if it has none.
fn name(value: &Value) -> String {
    let text = |field: &str| {
        value
            .get(field)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    text("name")
        .or_else(|| text("clusterName"))
        .unwrap_or_else(|| key(value))
}

/// The canonical form of a value and everything in it.
fn canonical(value: Value) -> Value {
    let map = match value {
        Value::Array(items) => return Value::Array(items.into_iter().map(canonical).collect()),
        Value::Object(map) => map,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            return other;
        }
    };

    let mut map: Map<String, Value> = map
        .into_iter()
        .map(|(key, value)| (key, canonical(value)))
        .collect();

    sort(&mut map, "virtualHosts", name);
    sort(&mut map, "domains", key);
    // In ztunnel's Services: istiod builds this list from a set.
    sort(&mut map, "subjectAltNames", key);
    sort(&mut map, "lbEndpoints", key);

    if let Some(Value::Object(matches)) = map.get_mut("match") {
        sort(matches, "headers", key);
        sort(matches, "queryParameters", key);
    }

    if map
        .get("endpoints")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().all(Value::is_object))
    {
        sort(&mut map, "endpoints", locality_key);
    }

    if let Some(version) = map.get_mut("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION") {
        *version = Value::from("VERSION");
    }

    Value::Object(map)
}

/// The sort key of the endpoints of a locality: locality, priority, content.
fn locality_key(group: &Value) -> String {
    let locality = group.get("locality").map_or_else(|| "{}".to_owned(), key);
    let priority = group
        .get("priority")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    format!("{locality}\0{priority:010}\0{}", key(group))
}

/// Sorts the list of a field, if it has one.
fn sort(map: &mut Map<String, Value>, field: &str, by: impl Fn(&Value) -> String) {
    if let Some(Value::Array(items)) = map.get_mut(field) {
        items.sort_by_cached_key(by);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_hosts_domains_and_endpoints_is_irrelevant() {
        let routes = |hosts: [&str; 2], domains: [&str; 2]| {
            let host = |name| json!({ "name": name, "domains": domains });
            json!({ "name": "80", "virtualHosts": hosts.map(host) })
        };
        let one = resources(&[routes(["a", "b"], ["x", "y"])]);
        assert_eq!(one, resources(&[routes(["b", "a"], ["y", "x"])]));
        assert_ne!(one, resources(&[routes(["a", "b"], ["x", "z"])]));
    }

    #[test]
    fn a_cluster_load_assignment_is_named_after_its_cluster() {
        let named = resources(&[json!({ "clusterName": "outbound|80||a" })]);
        assert_eq!(named.keys().collect::<Vec<_>>(), ["outbound|80||a"]);
    }
}
