//! Which connected proxies trust the roots of the CA: it signs with another root only once all do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use prost::Message;

use crate::connections::{ConnectionInfo, Connections, TypeInfo};
use navarch_api::identity::Identity;
use navarch_proto::istio::mesh::v1alpha1::ProxyConfig;
use navarch_push::resource::ResourceType;
use navarch_security::ca::Receipts;
use navarch_security::ca::keeper::FindMissing;
use navarch_security::ca::rotation::Missing;
use navarch_security::trust_bundle;

/// Returns the connected proxies that do not trust all of some roots yet.
#[must_use]
pub fn find_missing(connections: Arc<Connections>, receipts: Receipts) -> FindMissing {
    Arc::new(move |roots| lacking(&connections.list(), &receipts, roots))
}

/// The authenticated connected proxies that lack some of the roots. Proxies with PCDS must have
/// acknowledged them there; all others must have received them with their last certificate.
fn lacking(open: &[ConnectionInfo], receipts: &Receipts, roots: &str) -> Vec<Missing> {
    let wanted: BTreeSet<Arc<str>> = trust_bundle::split(roots, "")
        .unwrap_or_default()
        .into_iter()
        .collect();
    let mut callers: BTreeMap<(&Identity, IpAddr), usize> = BTreeMap::new();

    for info in open {
        if let (Some(identity), Some(peer)) = (&info.proxy.identity, info.peer) {
            *callers.entry((identity, peer.ip())).or_default() += 1;
        }
    }

    let mut missing = BTreeMap::new();

    for info in open {
        let proxy_config = info
            .types
            .iter()
            .find(|watch| watch.resource_type == ResourceType::ProxyConfig);
        let why = match (proxy_config, &info.proxy.identity, info.peer) {
            (Some(proxy_config), Some(_), _) => unacknowledged(proxy_config, &wanted),
            (None, Some(identity), Some(peer)) => {
                // If two proxies cannot be distinguished, one of them may have been handed the
                // roots.
                let is_sure = callers.get(&(identity, peer.ip())) == Some(&1);
                let has = is_sure && receipts.has(identity, peer.ip(), roots, &wanted);
                (!has).then_some(
                    "it does not use PCDS, and has received no certificate since the change",
                )
            }
            // An unauthenticated proxy does not count, as it could block the rotation for as long
            // as it likes.
            (_, None, _) => None,
            (None, Some(_), None) => Some("it does not use PCDS, and its address is unknown"),
        };

        if let Some(why) = why {
            missing.insert(info.id.to_string(), why.to_owned());
        }
    }

    missing
        .into_iter()
        .map(|(who, why)| Missing { who, why })
        .collect()
}

/// Why a proxy with PCDS has not acknowledged the roots; `None` if it has.
fn unacknowledged(proxy_config: &TypeInfo, wanted: &BTreeSet<Arc<str>>) -> Option<&'static str> {
    if proxy_config.rejected.is_some() {
        return Some("it rejected the roots");
    }

    let acknowledged = match (&proxy_config.sent, &proxy_config.acked) {
        (Some(sent), Some(acked)) => sent.nonce == acked.nonce,
        _ => false,
    };
    if !acknowledged {
        return Some("it has not acknowledged the roots");
    }

    let all = proxy_config
        .resources
        .iter()
        .flat_map(|sent| &sent.resources);
    let has: BTreeSet<Arc<str>> = all
        .filter_map(|resource| ProxyConfig::decode(resource.body.clone()).ok())
        .flat_map(|config| config.ca_certificates_pem)
        .map(Arc::from)
        .collect();

    (!wanted.is_subset(&has)).then_some("not all roots were sent to it yet")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::Protocol;
    use navarch_push::engine::ProxyId;
    use navarch_push::proxy::{Locality, Proxy};

    fn stream(pod: &str, identity: Option<&str>) -> ConnectionInfo {
        let id = format!("sidecar~10.0.0.1~{pod}.shop~shop.svc.cluster.local");
        let mut proxy = Proxy::parse(&id, serde_json::Value::Null, Locality::default()).unwrap();
        proxy.identity = identity.map(|identity| Identity::parse(identity).unwrap());
        ConnectionInfo {
            id: Arc::from(pod),
            peer: Some(([10, 0, 0, 1], 1).into()),
            connected_at: Timestamp::UNIX_EPOCH,
            protocol: Protocol::Delta,
            proxy: Arc::new(proxy),
            proxy_id: ProxyId::of(1),
            types: Vec::new(),
        }
    }

    #[test]
    fn streams_without_an_identity_keep_no_root_waiting() {
        let open = [
            stream("web", Some("spiffe://td/ns/shop/sa/web")),
            stream("stranger", None),
        ];
        let missing = lacking(&open, &Receipts::default(), "");
        let who: Vec<&str> = missing.iter().map(|missing| missing.who.as_str()).collect();
        assert_eq!(who, ["web"]);
    }
}
