//! Which node proxies may ask for certificates of others: those that workloads on their own node have.
//!
//! Agrees with `security/pkg/server/ca/node_auth.go`.

use std::collections::BTreeSet;

use crate::api::identity::{Identity, PodOfCaller};
use crate::api::kubernetes::PodPhase;
use crate::api::object::NamespacedName;
use crate::store::Objects;

/// Why a caller may not ask for another's certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// Nobody may.
    #[error("no service account is trusted with that (CA_TRUSTED_NODE_ACCOUNTS)")]
    Off,
    /// This caller may not.
    #[error("service account {0} is not trusted with that (CA_TRUSTED_NODE_ACCOUNTS)")]
    Untrusted(NamespacedName),
    /// It is not known in which pod the caller runs.
    #[error("the caller's token names no pod")]
    NoPod,
    /// The caller's pod is not the one that it says.
    #[error("pod {0} is not known, or is another than the caller's")]
    OtherPod(NamespacedName),
    /// Nobody of that identity runs beside the caller.
    #[error("no pod of service account {account} runs on node {node}")]
    NotHere {
        /// Whose certificate is asked for.
        account: NamespacedName,
        /// The caller's node.
        node: String,
    },
}

/// Checks that a caller may ask for a certificate of `wanted`.
pub(super) fn check(
    trusted: &BTreeSet<NamespacedName>,
    caller: &Identity,
    pod: Option<&PodOfCaller>,
    wanted: &Identity,
    objects: &Objects,
) -> Result<(), Denied> {
    if trusted.is_empty() {
        return Err(Denied::Off);
    }
    let account = caller.account();
    if !trusted.contains(&account) {
        return Err(Denied::Untrusted(account));
    }
    let pod = pod.ok_or(Denied::NoPod)?;
    let key = NamespacedName { namespace: caller.namespace.clone(), name: pod.name.clone() };
    let known = objects.pods.get(&key).filter(|known| {
        known.meta.uid == pod.uid && known.spec.service_account.as_str() == caller.service_account.as_str()
    });
    let node = known.and_then(|known| known.spec.node.clone());
    let node = node.ok_or(Denied::OtherPod(key))?;
    let mut pods = objects.pods.in_namespace(&wanted.namespace);
    let is_here = pods.any(|pod| {
        pod.spec.node.as_ref() == Some(&node)
            && pod.spec.service_account.as_str() == wanted.service_account.as_str()
            && pod.spec.phase != PodPhase::Failed
    });
    if is_here { Ok(()) } else { Err(Denied::NotHere { account: wanted.account(), node: node.to_string() }) }
}
