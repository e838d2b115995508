//! Environment variables from the request or the pod's label, which override the template's.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::names::PROXY;
use super::super::pod;

/// Sets variables of the proxy, after all other variables.
pub(super) fn set_environment(pod: &mut Value, environment: &BTreeMap<String, String>) {
    if environment.is_empty() {
        return;
    }

    let Some(proxy) = pod::find_in_pod_mut(pod, PROXY) else {
        return;
    };

    let env = pod::as_map(proxy)
        .entry("env")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(env) = env.as_array_mut() else {
        return;
    };

    env.retain(|variable| !environment.contains_key(pod::name(variable)));
    env.extend(environment.iter().map(|(name, value)| {
        if value.is_empty() {
            json!({ "name": name })
        } else {
            json!({ "name": name, "value": value })
        }
    }));
}

/// Removes variables of an earlier injection, so that the overlay's variables have the position of
/// a first injection.
pub(in super::super) fn unset_environment(pod: &mut Value, environment: &BTreeMap<String, String>) {
    let proxy = pod::find_in_pod_mut(pod, PROXY);
    if let Some(env) = proxy.and_then(|proxy| proxy.get_mut("env")?.as_array_mut()) {
        env.retain(|variable| !environment.contains_key(pod::name(variable)));
    }
}

/// Moves a variable of the proxy after all others, as in a first injection.
pub(super) fn move_last(pod: &mut Value, name: &str) {
    let proxy = pod::find_in_pod_mut(pod, PROXY);
    let Some(env) = proxy.and_then(|proxy| proxy.get_mut("env")?.as_array_mut()) else {
        return;
    };
    if let Some(at) = env.iter().position(|variable| pod::name(variable) == name) {
        let variable = env.remove(at);
        env.push(variable);
    }
}
