//! A proxy as far as plans are about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_push::engine::Interest;
use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_push::resource::ResourceType;

/// A proxy and what it asks for.
#[derive(Clone, Debug)]
pub struct Client {
    /// The proxy as it describes itself.
    pub proxy: Arc<Proxy>,
    /// What it asks for, by type.
    pub interests: BTreeMap<ResourceType, Interest>,
}

impl Client {
    /// A proxy that has just connected: it asks for all clusters, listeners and names, and from then on for what these name; ztunnel for
    /// all workloads, services and policies.
    #[must_use]
    pub fn fresh(proxy: Proxy) -> Self {
        let all = Interest { wildcard: true, ..Interest::default() };
        let kinds: &[ResourceType] = match proxy.kind {
            ProxyKind::Ztunnel => &[ResourceType::Address, ResourceType::Authorization],
            ProxyKind::Sidecar | ProxyKind::Router | ProxyKind::Waypoint | ProxyKind::AgentGateway => {
                &[ResourceType::Cluster, ResourceType::Listener, ResourceType::NameTable]
            }
        };
        let interests = kinds.iter().copied().map(|kind| (kind, all.clone())).collect();
        Self { proxy: Arc::new(proxy), interests }
    }

    /// Namespace and name of its pod or WorkloadEntry, by its own account.
    #[must_use]
    pub fn pod(&self) -> (&str, &str) {
        let (pod, namespace) = self.proxy.name.rsplit_once('.').unwrap_or((&self.proxy.name, ""));
        (namespace, pod)
    }
}
