//! The proxies that see a new version first: one of each workload, so that each kind of proxy is
//! asked before all are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_api::rollout::Share;
use navarch_push::context::PushContext;
use navarch_push::proxy::Proxy;
use navarch_push::quarantine::{Registered, registered};
use navarch_push::rollout::Rollout;
use navarch_xds::connections::ConnectionInfo;

/// The metadata key with the workload of a proxy.
const WORKLOAD_KEY: &str = "WORKLOAD_NAME";
/// Labels that identify the workload if the metadata does not; the first that is set applies.
const WORKLOAD_LABELS: [&str; 3] = [
    "service.istio.io/canonical-name",
    "app.kubernetes.io/name",
    "app",
];

/// A proxy that may represent its workload.
#[derive(Clone, Debug)]
pub(super) struct Representative<'a> {
    proxy: &'a Proxy,
    workload: Workload,
}

/// The workload of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Workload {
    /// The registry has the proxy's pod or WorkloadEntry with this account. The name is that of its
    /// owner there; a pod without an owner is of the workload that its proxy names.
    Registered {
        account: NamespacedName,
        name: Arc<str>,
    },
    /// Namespace and name are those in the node of the proxy.
    Claimed { namespace: Arc<str>, name: Arc<str> },
}

/// The proxies that may represent their workload: those with a voice, unless none of the namespace
/// has one. Names, namespaces and workloads of others are only claims, and many claims could leave
/// no place for honest proxies.
pub(super) fn representatives<'a>(
    context: &PushContext,
    connections: &'a [ConnectionInfo],
) -> Vec<Representative<'a>> {
    let known: Vec<(&Proxy, Option<Registered>)> = connections
        .iter()
        .map(|info| {
            let peer = info.peer.map(|peer| peer.ip());
            (&*info.proxy, registered(context, &info.proxy, peer))
        })
        .collect();
    let voices: BTreeSet<Namespace> = known
        .iter()
        .filter_map(|(_, registered)| registered.as_ref())
        .map(|registered| registered.voter.account.namespace.clone())
        .collect();

    known
        .into_iter()
        .filter(|(proxy, registered)| registered.is_some() || !voices.contains(&proxy.namespace))
        .map(|(proxy, registered)| Representative {
            proxy,
            workload: workload(proxy, registered),
        })
        .collect()
}

/// The proxies that see the new version at a stage in addition to those of its share: the first
/// proxy, in order, of each workload without a connected proxy in the share. Connected proxies of
/// `before` stay.
pub(super) fn chosen(
    rollout: &Rollout,
    share: Share,
    before: &BTreeSet<Arc<str>>,
    proxies: Vec<Representative<'_>>,
) -> BTreeSet<Arc<str>> {
    let mut workloads = BTreeMap::new();
    let mut chosen = BTreeSet::new();

    for Representative { proxy, workload } in proxies {
        let rank = rollout.rank(&proxy.name);
        let is_kept = before.contains(&proxy.name);
        if is_kept {
            chosen.insert(proxy.name.clone());
        }
        let sees = is_kept || share.contains(rank);
        let entry = workloads
            .entry(workload)
            .or_insert_with(|| (rank, proxy.name.clone(), sees));
        entry.2 |= sees;
        if (rank, &proxy.name) < (entry.0, &entry.1) {
            (entry.0, entry.1) = (rank, proxy.name.clone());
        }
    }

    chosen.extend(
        workloads
            .into_values()
            .filter(|(_, _, sees)| !sees)
            .map(|(_, first, _)| first),
    );

    chosen
}

/// The workload of a proxy.
fn workload(proxy: &Proxy, registered: Option<Registered>) -> Workload {
    match registered {
        Some(Registered { voter, owner }) => Workload::Registered {
            account: voter.account,
            name: owner.unwrap_or_else(|| claimed_name(proxy)),
        },
        None => Workload::Claimed {
            namespace: Arc::from(proxy.namespace.as_str()),
            name: claimed_name(proxy),
        },
    }
}

/// The name of a proxy's workload in its node.
fn claimed_name(proxy: &Proxy) -> Arc<str> {
    let label = || {
        WORKLOAD_LABELS
            .iter()
            .find_map(|label| proxy.labels.get(*label).cloned())
    };
    proxy
        .meta(WORKLOAD_KEY)
        .map(Arc::from)
        .or_else(label)
        .unwrap_or_else(|| proxy.service_cluster.clone())
}

#[cfg(test)]
mod tests {
    use navarch_api::identity::Identity;
    use navarch_push::proxy::Locality;
    use navarch_push::quarantine::instance::Mark;
    use navarch_push::quarantine::votes::Voter;
    use serde_json::json;

    use super::*;

    /// A proxy of `shop` whose node names the workload `web`.
    fn proxy(pod: &str, account: &str) -> Proxy {
        let id = format!("sidecar~10.0.0.1~{pod}.shop~shop.svc.cluster.local");
        let metadata = json!({ "NAMESPACE": "shop", "WORKLOAD_NAME": "web" });
        let proxy = Proxy::parse(&id, metadata, Locality::default()).unwrap();
        let identity = format!("spiffe://cluster.local/ns/shop/sa/{account}");
        Proxy {
            identity: Some(Identity::parse(&identity).unwrap()),
            ..proxy
        }
    }

    /// A pod of the registry.
    fn of_registry(pod: &str, account: &str, owner: Option<&str>) -> Registered {
        Registered {
            voter: Voter {
                account: NamespacedName::new("shop", account),
                workload: NamespacedName::new("shop", pod),
                mark: Mark::Unknown,
            },
            owner: owner.map(Arc::from),
        }
    }

    #[test]
    fn a_pod_takes_no_place_of_another_owner_or_account_by_its_claims() {
        let web = proxy("web-1", "web");
        let honest = workload(&web, Some(of_registry("web-1", "web", Some("web"))));
        let fellow = workload(&web, Some(of_registry("web-2", "web", Some("web"))));
        assert_eq!(honest, fellow);

        let evil = proxy("x5", "x5");
        for (account, owner) in [("x5", None), ("x5", Some("x5")), ("web", Some("x5"))] {
            let found = workload(&evil, Some(of_registry("x5", account, owner)));
            assert_ne!(found, honest, "{account} {owner:?}");
        }
        assert_ne!(workload(&evil, None), honest, "only a claim");
    }
}
