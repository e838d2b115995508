//! The proxies that istiod's debug pages list, and which of them are compared.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use navarch_shadow::twin::{Twin, Twins};
use serde_json::Value;

use super::super::debug_api::{DebugApi, DebugRequest};

/// The page with nodes and subscriptions.
const ADSZ: &str = "/debug/adsz";
/// The page with the types of proxies.
const SYNCZ: &str = "/debug/syncz";

/// The proxies that are connected to the replicas.
///
/// # Errors
/// If a replica does not respond, or with something else than JSON.
pub(super) fn twins(api: &DebugApi, domain: &str, timeout: Duration) -> anyhow::Result<Twins> {
    let adsz = pages(api, ADSZ, timeout)?;
    let syncz = pages(api, SYNCZ, timeout)?;

    let mut twins = Twins::default();
    for (place, clients) in &adsz {
        let kinds = syncz.get(place).unwrap_or(&Value::Null);
        twins.add(clients, kinds, domain);
    }
    Ok(twins)
}

/// A page of each replica, by its address or the name of its pod.
fn pages(api: &DebugApi, path: &str, timeout: Duration) -> anyhow::Result<BTreeMap<String, Value>> {
    let request = DebugRequest::get(path.to_owned(), timeout);
    let mut pages = BTreeMap::new();
    for (place, answer) in api.query_each(&request)? {
        let answer = answer.with_context(|| {
            format!("failed to get {path}: forward port 15014 of istiod, and name it by --address")
        })?;
        let page = serde_json::from_slice(&answer.body).with_context(|| {
            format!("{place} responded to {path} with something else than JSON")
        })?;
        pages.insert(place, page);
    }
    Ok(pages)
}

/// The proxies with these names.
///
/// # Errors
/// If one is not connected.
pub(super) fn named(
    mut twins: BTreeMap<String, Twin>,
    names: &[String],
) -> anyhow::Result<Vec<Twin>> {
    let mut chosen = Vec::new();
    for name in names {
        match twins.remove(name) {
            Some(twin) => chosen.push(twin),
            None => bail!(
                "the proxy {name} is not connected to istiod, or is no Envoy or ztunnel: see \
                 `istioctl proxy-status` for names"
            ),
        }
    }
    Ok(chosen)
}

/// At most `limit` proxies, evenly distributed over types and names; others in each round. 0 is no
/// limit.
pub(super) fn sample(twins: BTreeMap<String, Twin>, limit: usize, round: usize) -> Vec<Twin> {
    let mut all: Vec<Twin> = twins.into_values().collect();
    let count = all.len();
    if limit == 0 || limit >= count {
        return all;
    }

    // By name already, as the sort is stable.
    all.sort_by(|one, other| one.kind.cmp(&other.kind));
    let mut indices: Vec<usize> = (0..limit)
        .map(|part| (part * count / limit + round) % count)
        .collect();
    indices.sort_unstable();
    indices.dedup();

    let is_chosen = |index: &usize| indices.binary_search(index).is_ok();
    all.into_iter()
        .enumerate()
        .filter(|(index, _)| is_chosen(index))
        .map(|(_, twin)| twin)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Sidecars, and one gateway.
    fn connected(sidecars: usize) -> BTreeMap<String, Twin> {
        let client = |name: &str| {
            json!({
                "connectionId": format!("{name}.shop-1"),
                "metadata": { "NAMESPACE": "shop", "INSTANCE_IPS": "10.0.0.1" },
            })
        };
        let mut clients: Vec<Value> = (0..sidecars).map(|n| client(&format!("web-{n}"))).collect();
        clients.push(client("gateway"));
        let syncz = json!([{ "proxy": "gateway.shop", "proxy_type": "router" }]);
        let mut twins = Twins::default();
        twins.add(&json!({ "clients": clients }), &syncz, "cluster.local");
        twins.twins
    }

    #[test]
    fn rounds_of_a_sample_reach_all_proxies() {
        let mut seen = BTreeSet::new();
        for round in 0..10 {
            let chosen = sample(connected(9), 3, round);
            assert_eq!(chosen.len(), 3);
            seen.extend(chosen.into_iter().map(|twin| twin.name));
        }
        assert_eq!(seen.len(), 10);
    }

    #[test]
    fn a_sample_without_a_limit_has_all_proxies() {
        assert_eq!(sample(connected(4), 0, 3).len(), 5);
        assert_eq!(sample(connected(4), 9, 3).len(), 5);
    }

    #[test]
    fn a_named_proxy_must_be_connected() {
        let names = ["gateway.shop".to_owned()];
        assert_eq!(named(connected(2), &names).unwrap().len(), 1);
        let error = named(connected(2), &["gone.shop".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("istioctl proxy-status"));
    }
}
