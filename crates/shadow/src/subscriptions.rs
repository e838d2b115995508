//! What a proxy subscribes to, one type after the other: clusters, their endpoints, listeners,
//! their routes, then everything else that these name.

use std::collections::{BTreeMap, BTreeSet};

use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_push::resource::ResourceType;
use serde_json::Value;

/// The resources that a proxy got, as JSON, by type.
pub type ResourcesByType = BTreeMap<ResourceType, Vec<Value>>;

/// The types of Envoy, in the order in which it subscribes to them.
pub const ENVOY: [ResourceType; 7] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Listener,
    ResourceType::Route,
    ResourceType::Secret,
    ResourceType::ExtensionConfig,
    ResourceType::NameTable,
];

/// The types of ztunnel.
pub const ZTUNNEL: [ResourceType; 2] = [ResourceType::Address, ResourceType::Authorization];

/// The types that a proxy subscribes to, in order. Without a verified identity nobody gets secrets.
#[must_use]
pub fn types(proxy: &Proxy) -> Vec<ResourceType> {
    let captures_dns = proxy.meta("DNS_CAPTURE").as_deref() == Some("true");
    let is_wanted = |resource_type: &ResourceType| {
        (*resource_type != ResourceType::Secret || proxy.identity.is_some())
            && (*resource_type != ResourceType::NameTable || captures_dns)
    };
    if proxy.kind == ProxyKind::Ztunnel {
        ZTUNNEL.to_vec()
    } else {
        ENVOY.into_iter().filter(is_wanted).collect()
    }
}

/// The names of a type that a proxy subscribes to after it got `answers`, or an empty set for
/// everything; `None` if it does not subscribe to the type.
#[must_use]
pub fn names(resource_type: ResourceType, answers: &ResourcesByType) -> Option<BTreeSet<String>> {
    if resource_type.is_wildcard_by_default() {
        return Some(BTreeSet::new());
    }

    let of = |resource_type| answers.get(&resource_type).into_iter().flatten();
    let clusters = || of(ResourceType::Cluster);
    let listeners = || of(ResourceType::Listener);
    let mut names = BTreeSet::new();

    if resource_type == ResourceType::Endpoint {
        names.extend(clusters().filter_map(eds_name));
    } else if resource_type == ResourceType::Route {
        listeners().for_each(|listener| collect(listener, "routeConfigName", &mut names));
    } else if resource_type == ResourceType::Secret {
        let all = clusters().chain(listeners());
        all.for_each(|value| collect_secrets(value, &mut names));
    } else if resource_type == ResourceType::ExtensionConfig {
        listeners().for_each(|listener| collect_extensions(listener, &mut names));
    }

    (!names.is_empty()).then_some(names)
}

/// The name of a type in texts, such as `clusters`.
#[must_use]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "other types are not compared"
)]
pub fn plural(resource_type: ResourceType) -> &'static str {
    match resource_type {
        ResourceType::Cluster => "clusters",
        ResourceType::Endpoint => "endpoints",
        ResourceType::Listener => "listeners",
        ResourceType::Route => "routes",
        ResourceType::Secret => "secrets",
        ResourceType::ExtensionConfig => "extensions",
        ResourceType::NameTable => "nametable",
        ResourceType::Address => "addresses",
        ResourceType::Authorization => "authorizations",
        other => other.short_name(),
    }
}

/// The EDS service name of a cluster, if it uses EDS.
#[must_use]
pub fn eds_name(cluster: &Value) -> Option<String> {
    if cluster.get("type")?.as_str()? != "EDS" {
        return None;
    }
    let service = cluster
        .pointer("/edsClusterConfig/serviceName")
        .and_then(Value::as_str);
    service
        .or_else(|| cluster.get("name").and_then(Value::as_str))
        .map(str::to_owned)
}

/// Collects the strings of a field, anywhere in a value.
pub fn collect(value: &Value, field: &str, into: &mut BTreeSet<String>) {
    if let Value::Object(map) = value {
        into.extend(map.get(field).and_then(Value::as_str).map(str::to_owned));
        map.values().for_each(|value| collect(value, field, into));
    } else if let Value::Array(items) = value {
        items.iter().for_each(|value| collect(value, field, into));
    }
}

/// Collects the names of secrets that use ADS.
fn collect_secrets(value: &Value, into: &mut BTreeSet<String>) {
    if let Value::Object(map) = value {
        if value.pointer("/sdsConfig/ads").is_some() {
            into.extend(map.get("name").and_then(Value::as_str).map(str::to_owned));
        }
        map.values().for_each(|value| collect_secrets(value, into));
    } else if let Value::Array(items) = value {
        items.iter().for_each(|value| collect_secrets(value, into));
    }
}

/// Collects the names of filters whose configuration comes by ECDS.
fn collect_extensions(value: &Value, into: &mut BTreeSet<String>) {
    if let Value::Object(map) = value {
        if map.contains_key("configDiscovery") {
            into.extend(map.get("name").and_then(Value::as_str).map(str::to_owned));
        }
        map.values()
            .for_each(|value| collect_extensions(value, into));
    } else if let Value::Array(items) = value {
        items
            .iter()
            .for_each(|value| collect_extensions(value, into));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_follow_from_clusters_and_listeners() {
        let cluster = json!({
            "name": "outbound|80||a",
            "type": "EDS",
            "transportSocket": { "sdsConfig": { "ads": {} }, "name": "kubernetes://credential" },
        });
        let filters =
            json!([{ "routeConfigName": "80" }, { "name": "wasm", "configDiscovery": {} }]);
        let answers = ResourcesByType::from([
            (
                ResourceType::Cluster,
                vec![cluster, json!({ "name": "static" })],
            ),
            (
                ResourceType::Listener,
                vec![json!({ "name": "l", "filters": filters })],
            ),
        ]);

        for (resource_type, name) in [
            (ResourceType::Endpoint, "outbound|80||a"),
            (ResourceType::Route, "80"),
            (ResourceType::Secret, "kubernetes://credential"),
            (ResourceType::ExtensionConfig, "wasm"),
        ] {
            assert_eq!(
                names(resource_type, &answers),
                Some(BTreeSet::from([name.to_owned()])),
                "{resource_type:?}"
            );
        }
        assert_eq!(
            names(ResourceType::Cluster, &answers),
            Some(BTreeSet::new())
        );
    }

    #[test]
    fn a_type_that_nothing_names_is_not_subscribed_to() {
        assert_eq!(names(ResourceType::Route, &ResourcesByType::new()), None);
    }
}
