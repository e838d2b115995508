//! The clients of a mirror.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use navarch_push::engine::Interest;
use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_push::resource::ResourceType;

/// A proxy and its subscriptions.
#[derive(Clone, Debug)]
pub struct Client {
    /// The proxy, from its node message.
    pub proxy: Arc<Proxy>,
    /// Its subscriptions by type.
    pub interests: BTreeMap<ResourceType, Interest>,
}

impl Client {
    /// A proxy that has just connected: it subscribes to all clusters, listeners and names, and
    /// then to the resources that these refer to; ztunnel to all workloads, services and policies.
    #[must_use]
    pub fn fresh(proxy: Proxy) -> Self {
        let all = Interest {
            wildcard: true,
            ..Interest::default()
        };
        let types: &[ResourceType] = match proxy.kind {
            ProxyKind::Ztunnel => &[ResourceType::Address, ResourceType::Authorization],
            ProxyKind::Sidecar
            | ProxyKind::Router
            | ProxyKind::Waypoint
            | ProxyKind::AgentGateway => &[
                ResourceType::Cluster,
                ResourceType::Listener,
                ResourceType::NameTable,
            ],
        };

        let interests = types
            .iter()
            .copied()
            .map(|resource_type| (resource_type, all.clone()))
            .collect();
        Self {
            proxy: Arc::new(proxy),
            interests,
        }
    }

    /// Its first address; loopback if it has none.
    pub(crate) fn address(&self) -> IpAddr {
        let first = self.proxy.ips.first().copied();
        first.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Namespace and name of its pod or WorkloadEntry, from its node id.
    #[must_use]
    pub fn pod(&self) -> (&str, &str) {
        let (pod, namespace) = self
            .proxy
            .name
            .rsplit_once('.')
            .unwrap_or((&self.proxy.name, ""));
        (namespace, pod)
    }
}
