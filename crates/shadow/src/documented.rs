//! Differences from istiod that are intended and documented: resources with them are changed so
//! that the difference, and nothing else, disappears.

use std::collections::BTreeMap;

use navarch_push::resource::ResourceType;
use serde_json::Value;

/// An intended difference.
#[derive(Debug)]
pub struct Documented {
    /// A short name for scripts.
    pub id: &'static str,
    /// Why Navarch differs.
    pub reason: &'static str,
    /// The type of the resources that it concerns.
    resource_type: ResourceType,
    /// Removes the difference from the resources of istiod and of Navarch.
    remove: fn(&mut Value, &mut Value),
}

/// All intended differences in resources of proxies that can be recognized by the resources alone.
static ALL: [Documented; 4] = [
    Documented {
        id: "route-without-action",
        reason: "a redirectCode that Envoy does not have is a route without an action to istiod, \
                 for which Envoy rejects all routes of the port; Navarch leaves that route out",
        resource_type: ResourceType::Route,
        remove: remove_routes_without_action,
    },
    Documented {
        id: "dynamic-names-unchecked",
        reason: "Envoy rejects a dynamic forward proxy cluster with HTTP options and without TLS \
                 unless allow_insecure_cluster_options is set; Navarch sets it",
        resource_type: ResourceType::Cluster,
        remove: remove_unchecked_names,
    },
    Documented {
        id: "filter-after-router",
        reason: "Envoy rejects a listener with an HTTP filter after the router, which an \
                 EnvoyFilter can insert; Navarch leaves the filter out",
        resource_type: ResourceType::Listener,
        remove: remove_filters_after_router,
    },
    Documented {
        id: "token-keys",
        reason: "istiod has fetched the keys of a token issuer; this comparison fetches none",
        resource_type: ResourceType::Listener,
        remove: remove_token_keys,
    },
];

/// The name of Envoy's router among HTTP filters.
const ROUTER: &str = "envoy.filters.http.router";
/// The field that lets a dynamic forward proxy cluster leave names unchecked.
const UNCHECKED: &str = "allowInsecureClusterOptions";
/// Where a cluster has the configuration of its type.
const TYPE_CONFIG: &str = "/clusterType/typedConfig";
/// The actions of a route, one of which Envoy requires.
const ACTIONS: [&str; 5] = [
    "route",
    "redirect",
    "directResponse",
    "filterAction",
    "nonForwardingAction",
];

/// The intended differences of a type.
pub(crate) fn of_type(resource_type: ResourceType) -> impl Iterator<Item = &'static Documented> {
    ALL.iter()
        .filter(move |one| one.resource_type == resource_type)
}

impl Documented {
    /// Removes the difference from the resources that both sides have.
    pub(crate) fn remove(
        &self,
        istiod: &mut BTreeMap<String, Value>,
        navarch: &mut BTreeMap<String, Value>,
    ) {
        for (name, value) in istiod {
            if let Some(other) = navarch.get_mut(name) {
                (self.remove)(value, other);
            }
        }
    }
}

/// Removes istiod's routes without an action.
fn remove_routes_without_action(istiod: &mut Value, _: &mut Value) {
    let hosts = istiod.get_mut("virtualHosts").and_then(Value::as_array_mut);
    for host in hosts.into_iter().flatten() {
        if let Some(routes) = host.get_mut("routes").and_then(Value::as_array_mut) {
            routes.retain(|route| ACTIONS.iter().any(|action| route.get(action).is_some()));
        }
    }
}

/// Removes the permission from Navarch's cluster if istiod's does not have it.
fn remove_unchecked_names(istiod: &mut Value, navarch: &mut Value) {
    let istiod = istiod.pointer(TYPE_CONFIG);
    let navarch = navarch.pointer_mut(TYPE_CONFIG);
    let (Some(istiod), Some(Value::Object(navarch))) = (istiod, navarch) else {
        return;
    };
    if istiod.get(UNCHECKED).is_none() {
        navarch.remove(UNCHECKED);
    }
}

/// Removes what istiod has after the router in each list of HTTP filters.
fn remove_filters_after_router(istiod: &mut Value, _: &mut Value) {
    truncate_filters(istiod);
}

/// Ends each list of HTTP filters, at any depth, with its first router.
fn truncate_filters(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Array(filters)) = map.get_mut("httpFilters") {
                let is_router =
                    |filter: &Value| filter.get("name").and_then(Value::as_str) == Some(ROUTER);
                if let Some(index) = filters.iter().position(is_router) {
                    filters.truncate(index + 1);
                }
            }
            map.values_mut().for_each(truncate_filters);
        }
        Value::Array(items) => items.iter_mut().for_each(truncate_filters),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes the keys of token issuers from both sides.
fn remove_token_keys(istiod: &mut Value, navarch: &mut Value) {
    remove_keys(istiod);
    remove_keys(navarch);
}

/// Removes the keys of token issuers at any depth.
fn remove_keys(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("localJwks");
            map.values_mut().for_each(remove_keys);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
