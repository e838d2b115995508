//! The pod of a proxy (Istio's `getPodByProxy`).

use super::query::{ProxyQuery, Query};
use super::view::View;
use navarch_api::object::NamespacedName;
use navarch_registry::model::Labels;

/// The label of pods that simulate machines in Istio's own tests: no pod is looked up for their
/// proxies.
const TEST_MACHINE: &str = "istio.io/test-vm";

/// The proxy's pod: the pod with its name, else, if allowed, the pod at its primary address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodOfProxy;

impl Query for PodOfProxy {
    type Value = Option<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let proxy = view.proxy();
        let cluster_ref = proxy.proxy_cluster();
        let name = proxy.workload_name();
        if view.workload_in(&cluster_ref, &name).is_some() {
            return Some(name);
        }

        if !view.mesh().settings.find_pods_by_address {
            return None;
        }

        let at = proxy
            .ips()
            .first()
            .and_then(|ip| view.targets_at_in(&cluster_ref, *ip))?;
        match at.pods.as_slice() {
            [only] => Some(only.clone()),
            // Pods in the network of their node share its address and have no proxies; at least the
            // namespace must match.
            several => {
                let own = proxy.namespace_among(several.iter().map(|pod| pod.namespace.clone()))?;
                several.iter().find(|pod| pod.namespace == own).cloned()
            }
        }
    }
}

impl ProxyQuery for PodOfProxy {}

/// Whether a proxy with these labels runs on a machine.
pub(super) fn is_test_machine(sent: &Labels) -> bool {
    sent.get(TEST_MACHINE)
        .is_some_and(|value| !value.is_empty())
}
