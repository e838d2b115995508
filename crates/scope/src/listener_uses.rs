//! The clusters that a listener, or an extension that it requests, refers to.

use std::collections::{BTreeMap, BTreeSet};

use navarch_envoy::names::OutboundCluster;
use serde_json::{Map, Value};

use super::proxy_config::{ObjectPath, Routed};

/// The path of the object from which a filter chain was built, in Istio's metadata.
const CONFIG: &str = "/metadata/filterMetadata/istio/config";
/// The fields of a filter with the destinations of proxied connections and requests, or that repeat
/// their names, by the end of the filter's type. Clusters in its other fields, such as those of access
/// logs, get what the proxy itself sends.
const DESTINATIONS: [(&str, &[&str]); 3] = [
    (".TcpProxy", &["cluster", "weightedClusters", "statPrefix"]),
    (".HttpConnectionManager", &["routeConfig"]),
    (".RedisProxy", &["prefixRoutes"]),
];

/// What a listener refers to.
#[derive(Debug, Default)]
pub(crate) struct ListenerUses {
    /// The hosts that filters, access logs and tracers send to, and the names of these.
    pub(crate) extensions: BTreeMap<String, BTreeSet<String>>,
    /// The destinations of filter chains that were built from a VirtualService.
    pub(crate) chains: Vec<Routed>,
}

impl ListenerUses {
    /// Those of a listener, or of an extension on its own, as JSON.
    pub(crate) fn of(listener: &Value) -> Self {
        let mut uses = Self::default();
        uses.add(listener, "");
        let chains = listener.get("filterChains").and_then(Value::as_array);
        for chain in chains.into_iter().flatten() {
            uses.add_chain(listener, chain);
        }
        uses
    }

    /// Adds the clusters in a value. `owner` is the name of the extension that it is of.
    fn add(&mut self, value: &Value, owner: &str) {
        match value {
            Value::Object(fields) => {
                let owner = extension(fields).unwrap_or(owner);
                let destinations = destinations(fields);

                for (key, value) in fields {
                    if !destinations.contains(&key.as_str()) {
                        self.add(value, owner);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(item, owner)),
            Value::String(text) => {
                for cluster in clusters_in(text) {
                    let host = cluster.host.as_str().to_owned();
                    let owners = self.extensions.entry(host).or_default();
                    owners.insert(owner.to_owned());
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds the destinations of a filter chain that an object has made.
    fn add_chain(&mut self, listener: &Value, chain: &Value) {
        let path = chain.pointer(CONFIG).and_then(Value::as_str);
        let Some(object) = path.and_then(ObjectPath::of_virtual_service) else {
            return;
        };

        let mut hosts = BTreeSet::new();
        add_destinations(chain, &mut hosts);
        let name = listener.get("name").and_then(Value::as_str);
        self.chains.push(Routed {
            place: "a filter chain".to_owned(),
            within: format!("listener {}", name.unwrap_or_default()),
            host: String::new(),
            port: None,
            hosts,
            objects: BTreeSet::from([object]),
            content: None,
        });
    }
}

/// The clusters that a text names: it is a name itself, or contains some, as the configuration of a
/// Wasm module or the code of a Lua filter does.
fn clusters_in(text: &str) -> impl Iterator<Item = OutboundCluster> {
    let is_separator = |sign: char| !sign.is_ascii_alphanumeric() && !"|.-_*".contains(sign);
    let words = text.contains('|').then(|| text.split(is_separator));
    words
        .into_iter()
        .flatten()
        .filter_map(OutboundCluster::parse)
}

/// The name of an extension; `None` for other objects, such as headers.
fn extension(fields: &Map<String, Value>) -> Option<&str> {
    let is_extension = fields.contains_key("typedConfig") || fields.contains_key("configDiscovery");
    let name = fields.get("name").and_then(Value::as_str);
    name.filter(|_| is_extension)
}

/// The fields of a filter with its destinations.
fn destinations(fields: &Map<String, Value>) -> &'static [&'static str] {
    let kind = fields.get("@type").and_then(Value::as_str);
    let known = kind.and_then(|kind| DESTINATIONS.iter().find(|(end, _)| kind.ends_with(end)));
    known.map_or(&[], |(_, fields)| fields)
}

/// Adds the hosts of the destinations of all filters in a value.
fn add_destinations(value: &Value, hosts: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let own = destinations(fields);
            if own.is_empty() {
                fields
                    .values()
                    .for_each(|value| add_destinations(value, hosts));
            }
            for key in own {
                fields
                    .get(*key)
                    .into_iter()
                    .for_each(|value| add_hosts(value, hosts));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_destinations(item, hosts)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the hosts of all clusters in a value.
fn add_hosts(value: &Value, hosts: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.values().for_each(|value| add_hosts(value, hosts)),
        Value::Array(items) => items.iter().for_each(|item| add_hosts(item, hosts)),
        Value::String(text) => {
            let cluster = OutboundCluster::parse(text);
            hosts.extend(cluster.map(|cluster| cluster.host.as_str().to_owned()));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn clusters_of_extensions_are_told_from_destinations() {
        let config = "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/db";
        let listener = json!({ "name": "0.0.0.0_5432", "filterChains": [{
            "metadata": { "filterMetadata": { "istio": { "config": config } } },
            "filters": [{
                "name": "envoy.filters.network.tcp_proxy",
                "typedConfig": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                    "cluster": "outbound|5432||db.shop.svc.cluster.local",
                    "accessLog": [{ "name": "envoy.access_loggers.open_telemetry", "typedConfig": {
                        "grpcService": { "envoyGrpc": { "clusterName": "outbound|4317||otel.obs.svc.cluster.local" } },
                    } }],
                },
            }],
        }] });

        let uses = ListenerUses::of(&listener);
        let owner = "envoy.access_loggers.open_telemetry".to_owned();
        let expected = BTreeMap::from([(
            "otel.obs.svc.cluster.local".to_owned(),
            BTreeSet::from([owner]),
        )]);
        assert_eq!(uses.extensions, expected);

        let chain = &uses.chains[0];
        let hosts: Vec<&String> = chain.hosts.iter().collect();
        assert_eq!(hosts, ["db.shop.svc.cluster.local"]);
        assert_eq!(chain.objects.first().unwrap().name, "db");
    }

    #[test]
    fn extensions_name_clusters_in_configuration_and_code() {
        let wasm = json!({ "name": "shop.auth", "typedConfig": {
            "config": { "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": "{\"cluster\":\"outbound|80||auth.shop.svc.cluster.local\"}",
            } },
        } });
        let lua = json!({ "name": "envoy.filters.http.lua", "typedConfig": { "defaultSourceCode": {
            "inlineString": "handle:httpCall('outbound|81||log.obs.svc.cluster.local', {})",
        } } });
        let uses = ListenerUses::of(&json!({ "filters": [wasm, lua] }));
        let hosts: Vec<&String> = uses.extensions.keys().collect();
        assert_eq!(
            hosts,
            ["auth.shop.svc.cluster.local", "log.obs.svc.cluster.local"]
        );
        let owners = &uses.extensions["log.obs.svc.cluster.local"];
        assert!(owners.contains("envoy.filters.http.lua"));
    }
}
