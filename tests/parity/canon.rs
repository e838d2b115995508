//! The canonical form in which two sets of resources are compared: unordered lists are sorted, and
//! values that differ between any two runs of istiod are replaced.

use std::collections::BTreeMap;

use serde_json::Value;

/// The maximum number of differences that are printed per comparison.
const MAX_DIFFERENCES: usize = 40;

/// Resources by name, in canonical form.
pub(crate) fn resources(list: &[Value]) -> BTreeMap<String, Value> {
    list.iter()
        .map(|value| canon(value.clone()))
        .map(|value| (name(&value), value))
        .collect()
}

/// Lists how `actual` differs from `expected`; empty if equal.
pub(crate) fn diff(expected: &[Value], actual: &[Value]) -> Vec<String> {
    let expected = resources(expected);
    let actual = resources(actual);
    let mut out = Vec::new();
    for (name, value) in &expected {
        match actual.get(name) {
            None => out.push(format!("- {name} is missing")),
            Some(other) => walk(value, other, name, &mut out),
        }
    }
    out.extend(
        actual
            .keys()
            .filter(|name| !expected.contains_key(*name))
            .map(|name| format!("+ {name} is not expected")),
    );
    out
}

fn key(value: &Value) -> String {
    value.to_string()
}

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

fn canon(value: Value) -> Value {
    let map = match value {
        Value::Array(items) => return Value::Array(items.into_iter().map(canon).collect()),
        Value::Object(map) => map,
        other => return other,
    };
    let mut map: serde_json::Map<String, Value> = map
        .into_iter()
        .map(|(key, value)| (key, canon(value)))
        .collect();
    sort(map.get_mut("virtualHosts"), name);

    sort(map.get_mut("domains"), key);

    // In ztunnel's Services: istiod builds this list from a set.
    sort(map.get_mut("subjectAltNames"), key);

    if let Some(matches) = map.get_mut("match") {
        sort(matches.get_mut("headers"), key);
        sort(matches.get_mut("queryParameters"), key);
    }

    sort(map.get_mut("lbEndpoints"), key);

    if map
        .get("endpoints")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().all(Value::is_object))
    {
        sort(map.get_mut("endpoints"), |group| {
            let locality = group.get("locality").map_or_else(|| "{}".to_owned(), key);
            let priority = group
                .get("priority")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            format!("{locality}\0{priority:010}\0{}", key(group))
        });
    }

    if let Some(version) = map.get_mut("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION") {
        *version = Value::from("VERSION");
    }

    Value::Object(map)
}

fn sort(list: Option<&mut Value>, by: impl Fn(&Value) -> String) {
    if let Some(Value::Array(items)) = list {
        items.sort_by_cached_key(by);
    }
}

/// Lists the paths at which two values differ.
pub(crate) fn walk(a: &Value, b: &Value, path: &str, out: &mut Vec<String>) {
    if out.len() > MAX_DIFFERENCES {
        return;
    }

    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => walk(a, b, &format!("{path}.{key}"), out),
                    (Some(a), None) => out.push(format!("- {path}.{key} = {}", short(a))),
                    (None, Some(b)) => out.push(format!("+ {path}.{key} = {}", short(b))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                out.push(format!("! {path}: {} items, got {}", a.len(), b.len()));
            }
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(a, b, &format!("{path}[{index}]"), out);
            }
        }
        (Value::Number(x), Value::Number(y)) if x.as_f64() == y.as_f64() => {}
        (a, b) if a == b => {}
        (a, b) => out.push(format!("! {path}: {}, got {}", short(a), short(b))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    text.char_indices()
        .nth(160)
        .map_or_else(|| text.clone(), |(end, _)| format!("{}…", &text[..end]))
}
