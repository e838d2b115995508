//! The proxies that are connected to istiod, read from its debug pages `adsz` and `syncz`: each
//! with the node that a stream in its place sends.

use std::collections::BTreeMap;

use navarch_api::identity::Identity;
use navarch_base::routes_held;
use navarch_proto::envoy::config::core::v3::{Locality as WireLocality, Node};
use navarch_proto::json::{Codec, JsonError};
use navarch_push::proxy::{Locality, NodeError, Proxy};
use prost::Message as _;
use serde::Serialize;
use serde_json::Value;

/// Metadata that a twin leaves out. With the first two istiod would write: it creates a
/// WorkloadEntry for a proxy that registers itself, and the health of one with an entry. With the
/// others routes can come in two parts, which are not compared.
const LEFT_OUT: [&str; 4] = [
    "AUTO_REGISTER_GROUP",
    "WORKLOAD_ENTRY",
    "FINE_GRAINED_ROUTES",
    routes_held::NODE_KEY,
];
/// The type of a struct in the protos.
const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";
/// The type of a proxy that istiod does not report the type of: it reports none before 1.18.
const DEFAULT_KIND: &str = "sidecar";

/// A connected proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Twin {
    /// `<pod>.<namespace>`.
    pub name: String,
    /// The first part of the node id.
    pub kind: String,
    /// The whole node id.
    node_id: String,
    metadata: Value,
    /// `region/zone/subzone`.
    locality: String,
}

/// A proxy without a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    /// `<pod>.<namespace>`.
    pub proxy: String,
    /// Why it is not compared.
    pub reason: String,
}

/// The proxies of debug pages.
#[derive(Debug, Default)]
pub struct Twins {
    /// Those that can be compared, by name.
    pub twins: BTreeMap<String, Twin>,
    /// Those of kinds that are not compared.
    pub skipped: Vec<NotCompared>,
}

/// A twin whose node cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TwinError {
    /// istiod has reported metadata that is not a struct.
    #[error("istiod reports invalid metadata")]
    Metadata(#[from] JsonError),
    /// The encoded struct cannot be read.
    #[error("istiod reports invalid metadata")]
    Struct(#[from] prost::DecodeError),
    /// Navarch rejects the node.
    #[error("Navarch rejects the proxy's node")]
    Node(#[from] NodeError),
}

impl Twins {
    /// Adds the proxies of one replica's pages `adsz` and `syncz`; `domain` is that of the cluster.
    pub fn add(&mut self, adsz: &Value, syncz: &Value, domain: &str) {
        let kinds = kinds(syncz);
        let clients = adsz.get("clients").and_then(Value::as_array);

        for client in clients.into_iter().flatten() {
            let Some(name) = proxy_name(client) else {
                continue;
            };
            let kind = kinds.get(name).copied().unwrap_or(DEFAULT_KIND);
            match twin_of(name, kind, client, domain) {
                Ok(twin) => _ = self.twins.insert(name.to_owned(), twin),
                Err(reason) => self.skipped.push(NotCompared {
                    proxy: name.to_owned(),
                    reason: reason.to_owned(),
                }),
            }
        }
    }
}

impl Twin {
    /// The node that a stream in place of the proxy sends.
    ///
    /// # Errors
    /// If istiod has reported metadata that cannot be sent.
    pub fn node(&self, codec: &Codec) -> Result<Node, TwinError> {
        let encoded = codec.from_json(STRUCT, &self.metadata)?;
        let Locality {
            region,
            zone,
            sub_zone,
        } = Locality::parse(&self.locality);
        Ok(Node {
            id: self.node_id.clone(),
            metadata: Some(prost_types::Struct::decode(encoded.as_slice())?),
            locality: Some(WireLocality {
                region: region.to_string(),
                zone: zone.to_string(),
                sub_zone: sub_zone.to_string(),
            }),
            ..Node::default()
        })
    }

    /// The proxy for Navarch; with an identity of this trust domain if it is authenticated.
    ///
    /// # Errors
    /// If Navarch would reject its node.
    pub fn proxy(&self, trust_domain: Option<&str>) -> Result<Proxy, TwinError> {
        let locality = Locality::parse(&self.locality);
        let parsed = Proxy::parse(&self.node_id, self.metadata.clone(), locality)?;
        let account = parsed
            .meta("SERVICE_ACCOUNT")
            .unwrap_or_else(|| "default".to_owned());
        let identity = trust_domain.and_then(|domain| {
            let namespace = &parsed.namespace;
            Identity::parse(&format!("spiffe://{domain}/ns/{namespace}/sa/{account}")).ok()
        });
        Ok(Proxy {
            uses_delta: true,
            identity,
            ..parsed
        })
    }
}

/// One client as twin, or the reason why it is not compared.
fn twin_of(name: &str, kind: &str, client: &Value, domain: &str) -> Result<Twin, &'static str> {
    let mut metadata = client.get("metadata").cloned().unwrap_or_default();
    let Some(map) = metadata.as_object_mut() else {
        return Err("istiod does not report its metadata");
    };
    if map.contains_key("GENERATOR") {
        return Err("is an application or tool with a generator of its own, not a proxy");
    }
    if kind == "agentgateway" {
        return Err("is an agentgateway, whose resources Navarch does not generate");
    }
    LEFT_OUT.iter().for_each(|key| _ = map.remove(*key));

    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let namespace = match text("NAMESPACE") {
        "" => name.rsplit_once('.').map_or("", |(_, namespace)| namespace),
        namespace => namespace,
    };
    let first = text("INSTANCE_IPS").split(',').next().unwrap_or_default();
    let ip = if first.is_empty() {
        peer_ip(client)
    } else {
        first
    };

    let node_id = format!("{kind}~{ip}~{name}~{namespace}.svc.{domain}");
    Ok(Twin {
        name: name.to_owned(),
        kind: kind.to_owned(),
        node_id,
        locality: locality(client),
        metadata,
    })
}

/// The types of proxies in a page `syncz`, by name.
fn kinds(syncz: &Value) -> BTreeMap<&str, &str> {
    let all = syncz.as_array().into_iter().flatten();
    all.filter_map(|status| {
        let name = status.get("proxy")?.as_str()?;
        let kind = status.get("proxy_type")?.as_str()?;
        Some((name, kind))
    })
    .collect()
}

/// `<pod>.<namespace>` of a connection's id, which ends with a number.
fn proxy_name(client: &Value) -> Option<&str> {
    let id = client.get("connectionId")?.as_str()?;
    Some(id.rsplit_once('-')?.0)
}

/// The address from which a client is connected, without its port.
fn peer_ip(client: &Value) -> &str {
    let address = client
        .get("address")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The locality of a client as `region/zone/subzone`.
fn locality(client: &Value) -> String {
    let part = |key: &str| {
        let part = client.pointer(&format!("/locality/{key}"));
        part.and_then(Value::as_str).unwrap_or_default()
    };
    [part("region"), part("zone"), part("sub_zone")].join("/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn twins(clients: &Value, kind: &str) -> Twins {
        let syncz = json!([{ "proxy": "web-1.shop", "proxy_type": kind }]);
        let mut twins = Twins::default();
        twins.add(&json!({ "clients": clients }), &syncz, "cluster.local");
        twins
    }

    #[test]
    fn a_twin_has_the_node_of_its_proxy() {
        let client = json!({
            "connectionId": "web-1.shop-17",
            "metadata": { "NAMESPACE": "shop", "INSTANCE_IPS": "10.1.2.3,fd00::3" },
            "locality": { "region": "r", "zone": "z" },
        });
        let found = twins(&json!([client]), "router");
        let twin = &found.twins["web-1.shop"];
        let node = twin.node(&Codec::new()).unwrap();
        assert_eq!(node.id, "router~10.1.2.3~web-1.shop~shop.svc.cluster.local");
        let locality = node.locality.unwrap();
        assert_eq!((&*locality.region, &*locality.zone), ("r", "z"));

        let proxy = twin.proxy(Some("cluster.local")).unwrap();
        let identity = proxy.identity.unwrap();
        assert_eq!(identity.account().to_string(), "shop/default");
        assert_eq!(twin.proxy(None).unwrap().identity, None);
    }

    #[test]
    fn a_twin_causes_no_registration() {
        let client = json!({
            "connectionId": "web-1.shop-17",
            "address": "10.1.2.3:40112",
            "metadata": {
                "NAMESPACE": "shop",
                "AUTO_REGISTER_GROUP": "machines",
                "WORKLOAD_ENTRY": "machine-1",
            },
        });
        let found = twins(&json!([client]), "sidecar");
        let node = found.twins["web-1.shop"].node(&Codec::new()).unwrap();
        let fields = node.metadata.unwrap().fields;
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["NAMESPACE"]);
        assert!(node.id.starts_with("sidecar~10.1.2.3~"), "{}", node.id);
    }

    #[test]
    fn what_is_no_proxy_is_skipped_with_a_reason() {
        let client = json!({
            "connectionId": "web-1.shop-17",
            "metadata": { "GENERATOR": "grpc", "NAMESPACE": "shop" },
        });
        let found = twins(&json!([client]), "sidecar");
        assert!(found.twins.is_empty());
        assert_eq!(found.skipped.len(), 1);
    }
}
