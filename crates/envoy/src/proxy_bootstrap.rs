//! Envoy's bootstrap, for agents that request it (`BOOTSTRAP_XDS_AGENT`): generated from the node of
//! the request alone, with the patches of EnvoyFilters.
//!
//! Agrees with Istio's `pilot/pkg/xds/bootstrapds.go`, which existed until 1.20. There the settings
//! that are not in the node are those of istiod; here the agent sends its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use navarch_bootstrap::addresses::Addresses;
use navarch_bootstrap::node::{Locality, Node};
use navarch_bootstrap::{BootstrapInput, SETTINGS_KEY, Settings};
use navarch_proto::any::type_url;
use navarch_proto::envoy::config::bootstrap::v3::Bootstrap;
use prost::Message as _;
use serde_json::{Map, Value};

use super::build::encode;
use super::patches::patch_bootstrap;
use super::proxy_locality;
use navarch_api::envoy_json::codec;
use navarch_api::mesh::ProxyConfig;
use navarch_api::names::ResourceName;
use navarch_push::proxy::{ProxyKind, read_proxy_config};
use navarch_push::view::View;
use tracing::subscriber::NoSubscriber;

/// Limits of what a proxy can make the control plane generate. Each pod has a few addresses, and its
/// labels, annotations and proxy config are a few kilobytes.
const MAX_METADATA_SIZE: usize = 64 * 1024;
const MAX_ADDRESSES: usize = 64;
const MAX_STATS_SIZE: usize = 128 * 1024;

/// There is one for each Envoy, with an empty name.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    kind_name(view).map_or_else(Vec::new, |_| vec![ResourceName::default()])
}

/// The bootstrap of the proxy; none if its settings are invalid.
pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let kind = kind_name(view).filter(|_| name.is_empty())?;
    let mut bootstrap = generated(kind, view)
        .inspect_err(|reason| {
            view.remark(format!(
                "proxy {} gets no bootstrap: {reason}",
                view.proxy().name()
            ));
        })
        .ok()?;
    patch_bootstrap(view, &mut bootstrap);
    Some(encode(&bootstrap))
}

/// The first part of the id of an Envoy; `None` for other proxies.
fn kind_name(view: &View<'_>) -> Option<&'static str> {
    match view.proxy().kind() {
        ProxyKind::Sidecar => Some("sidecar"),
        ProxyKind::Router => Some("router"),
        ProxyKind::Waypoint => Some("waypoint"),
        ProxyKind::Ztunnel | ProxyKind::AgentGateway => None,
    }
}

/// The bootstrap without patches; the error is the reason for the operator.
fn generated(kind: &str, view: &View<'_>) -> Result<Bootstrap, String> {
    let proxy = view.proxy();
    let text = proxy.all_meta();
    check_limit("bytes of metadata", text.len(), MAX_METADATA_SIZE)?;
    check_limit("addresses", proxy.ips().len(), MAX_ADDRESSES)?;

    let mut metadata: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|error| format!("its metadata is not an object: {error}"))?;
    let settings = Settings::take_from(&mut metadata)
        .map_err(|error| format!("{SETTINGS_KEY} of its metadata is invalid: {error}"))?;
    let config = match proxy.meta("PROXY_CONFIG") {
        Some(text) => read_proxy_config(&text).map_err(|error| error.to_string())?,
        None => ProxyConfig::istio_defaults(),
    };

    let addresses = Addresses(proxy.ips().to_vec());
    let node = node(kind, view, &addresses, metadata);
    let input = BootstrapInput {
        node: &node,
        addresses: &addresses,
        config: &config,
        settings: &settings,
    };
    let stats = navarch_bootstrap::stats_size(&input);
    check_limit("bytes of stats tags and matchers", stats, MAX_STATS_SIZE)?;

    // Its warnings are for the user of an agent: here each request of a proxy would write them.
    let json = tracing::subscriber::with_default(NoSubscriber::new(), || {
        navarch_bootstrap::bootstrap(&input)
    });
    let json = json.map_err(|error| error.to_string())?;

    let bytes = codec().from_json(&type_url::<Bootstrap>(), &json);
    let bytes = bytes.map_err(|error| error.to_string())?;
    Bootstrap::decode(bytes.as_slice()).map_err(|error| error.to_string())
}

/// Rejects what is larger than its limit.
fn check_limit(what: &str, size: usize, limit: usize) -> Result<(), String> {
    if size > limit {
        return Err(format!("it has {size} {what}, more than {limit}"));
    }
    Ok(())
}

/// The node that Envoy sends: the same as that of the request, at the locality that is known here.
fn node(kind: &str, view: &View<'_>, addresses: &Addresses, metadata: Map<String, Value>) -> Node {
    let proxy = view.proxy();
    let first = addresses.0.first().map(ToString::to_string);
    let locality = proxy_locality::known(view).unwrap_or_default();

    Node {
        id: format!(
            "{kind}~{}~{}~{}",
            first.unwrap_or_default(),
            proxy.name(),
            proxy.dns_domain()
        ),
        labels: texts(&metadata, "LABELS"),
        annotations: texts(&metadata, "ANNOTATIONS"),
        raw: metadata.clone(),
        metadata,
        locality: Locality {
            region: locality.region.to_string(),
            zone: locality.zone.to_string(),
            sub_zone: locality.sub_zone.to_string(),
        },
    }
}

/// The texts of an object in the metadata.
fn texts(metadata: &Map<String, Value>, key: &str) -> BTreeMap<String, String> {
    let fields = metadata.get(key).and_then(Value::as_object);
    fields
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests;
