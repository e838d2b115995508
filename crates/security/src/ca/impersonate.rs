//! Node proxies may request certificates of other identities: of the workloads on their own node.
//! Nodes and pods are looked up in the cluster whose API server authenticated the caller.
//!
//! Agrees with `security/pkg/server/ca/node_auth.go`.

use std::collections::BTreeSet;

use navarch_api::identity::{Identity, PodOfCaller};
use navarch_api::kubernetes::PodPhase;
use navarch_api::object::NamespacedName;
use navarch_api::uid::Uid;

use crate::authenticate::MeshSnapshot;

/// Why a caller may not request a certificate of another identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// Impersonation is disabled.
    #[error("no service account may impersonate other identities (CA_TRUSTED_NODE_ACCOUNTS)")]
    Off,
    /// The caller is not a trusted node proxy.
    #[error("service account {0} may not impersonate other identities (CA_TRUSTED_NODE_ACCOUNTS)")]
    Untrusted(NamespacedName),
    /// The caller's pod is unknown.
    #[error("the caller's token is not bound to a pod")]
    NoPod,
    /// The caller's pod does not exist, or does not match the caller.
    #[error("pod {0} is unknown or does not match the caller")]
    OtherPod(NamespacedName),
    /// No workload of the identity runs on the caller's node.
    #[error("no pod of service account {account} runs on node {node}")]
    NotHere {
        /// The requested identity.
        account: NamespacedName,
        /// The caller's node.
        node: String,
    },
}

/// Checks that a caller may request a certificate of `wanted`.
pub(super) fn check(
    trusted: &BTreeSet<NamespacedName>,
    caller: &Identity,
    pod: Option<&PodOfCaller>,
    wanted: &Identity,
    snapshot: &MeshSnapshot,
) -> Result<(), Denied> {
    if trusted.is_empty() {
        return Err(Denied::Off);
    }

    let account = caller.account();
    if !trusted.contains(&account) {
        return Err(Denied::Untrusted(account));
    }

    let pod = pod.ok_or(Denied::NoPod)?;
    let key = NamespacedName::of(caller.namespace.clone(), pod.name.clone());
    let uid = Uid::new(&pod.uid);
    let objects = match &pod.cluster {
        None => &snapshot.objects,
        Some(cluster) => snapshot
            .remotes
            .get(cluster)
            .ok_or_else(|| Denied::OtherPod(key.clone()))?,
    };

    let known = objects.pods.get(&key).filter(|known| {
        known.meta.uid == uid
            && known.spec.service_account.as_str() == caller.service_account.as_str()
    });
    let node = known.and_then(|known| known.spec.node.clone());
    let node = node.ok_or(Denied::OtherPod(key))?;
    let mut pods = objects.pods.in_namespace(&wanted.namespace);
    let is_here = pods.any(|pod| {
        pod.spec.node.as_ref() == Some(&node)
            && pod.spec.service_account.as_str() == wanted.service_account.as_str()
            && pod.spec.phase != PodPhase::Failed
    });

    if is_here {
        Ok(())
    } else {
        Err(Denied::NotHere {
            account: wanted.account(),
            node: node.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use imbl::OrdMap;

    use super::*;
    use navarch_api::decode::{Format, Outcome, decode_documents};
    use navarch_api::names::{ClusterId, TrustDomain};
    use navarch_store::Objects;

    /// A node proxy on each of two nodes, an application on one, and one that has failed.
    const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: ztunnel-1, namespace: istio-system, uid: z1}
spec: {nodeName: one, serviceAccountName: ztunnel, containers: [{name: app, image: app}]}
---
apiVersion: v1
kind: Pod
metadata: {name: ztunnel-2, namespace: istio-system, uid: z2}
spec: {nodeName: two, serviceAccountName: ztunnel, containers: [{name: app, image: app}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: w}
spec: {nodeName: one, serviceAccountName: web, containers: [{name: app, image: app}]}
---
apiVersion: v1
kind: Pod
metadata: {name: old, namespace: shop, uid: o}
spec: {nodeName: two, serviceAccountName: web, containers: [{name: app, image: app}]}
status: {phase: Failed}
";

    #[test]
    fn a_node_proxy_may_only_impersonate_workloads_of_its_node() {
        let mut objects = Objects::default();

        for decoded in decode_documents(PODS, Format::Yaml) {
            let Outcome::Read { object, .. } = decoded.outcome else {
                panic!("a pod")
            };
            objects.put_any(object);
        }

        let mut snapshot = MeshSnapshot {
            objects,
            remotes: OrdMap::default(),
            trust_domain: TrustDomain::new("cluster.local"),
            aliases: Vec::new(),
            cluster: ClusterId::new("Kubernetes"),
        };

        let trusted = BTreeSet::from([NamespacedName::new("istio-system", "ztunnel")]);
        let id =
            |account: &str| Identity::parse(&format!("spiffe://cluster.local/{account}")).unwrap();
        let pod = |name: &str, uid: &str| {
            Some(PodOfCaller {
                name: Arc::from(name),
                uid: Arc::from(uid),
                cluster: None,
            })
        };

        let ztunnel = id("ns/istio-system/sa/ztunnel");
        let web = id("ns/shop/sa/web");
        let ask = |caller: &Identity, pod: Option<PodOfCaller>, wanted: &Identity| {
            check(&trusted, caller, pod.as_ref(), wanted, &snapshot)
        };
        assert_eq!(ask(&ztunnel, pod("ztunnel-1", "z1"), &web), Ok(()));
        let elsewhere = ask(&ztunnel, pod("ztunnel-2", "z2"), &web);
        assert!(
            matches!(elsewhere, Err(Denied::NotHere { .. })),
            "what has failed does not count: {elsewhere:?}"
        );

        let nobody = ask(&ztunnel, pod("ztunnel-1", "z1"), &id("ns/shop/sa/admin"));
        assert!(matches!(nobody, Err(Denied::NotHere { .. })), "{nobody:?}");
        assert!(
            matches!(
                ask(&ztunnel, pod("ztunnel-1", "z0"), &web),
                Err(Denied::OtherPod(_))
            ),
            "a former pod"
        );

        assert!(
            matches!(
                ask(&ztunnel, pod("web", "w"), &web),
                Err(Denied::OtherPod(_))
            ),
            "another's pod"
        );

        assert_eq!(ask(&ztunnel, None, &web), Err(Denied::NoPod));
        let waypoint = id("ns/shop/sa/waypoint");
        let denied = ask(&waypoint, pod("web", "w"), &web);
        assert!(
            matches!(denied, Err(Denied::Untrusted(_))),
            "waypoints have certificates of their own alone"
        );
        assert_eq!(
            check(&BTreeSet::new(), &ztunnel, None, &web, &snapshot),
            Err(Denied::Off)
        );

        // In a remote cluster the pods there count, and no others.
        let there = |name: &str, uid: &str| {
            pod(name, uid).map(|pod| PodOfCaller {
                cluster: Some(ClusterId::new("two")),
                ..pod
            })
        };

        let two = ClusterId::new("two");
        let unknown = check(
            &trusted,
            &ztunnel,
            there("ztunnel-1", "z1").as_ref(),
            &web,
            &snapshot,
        );

        assert!(matches!(unknown, Err(Denied::OtherPod(_))), "{unknown:?}");
        snapshot
            .remotes
            .insert(two, std::mem::take(&mut snapshot.objects));
        assert_eq!(
            check(
                &trusted,
                &ztunnel,
                there("ztunnel-1", "z1").as_ref(),
                &web,
                &snapshot
            ),
            Ok(())
        );

        let here = check(
            &trusted,
            &ztunnel,
            pod("ztunnel-1", "z1").as_ref(),
            &web,
            &snapshot,
        );

        assert!(matches!(here, Err(Denied::OtherPod(_))), "{here:?}");
    }
}
