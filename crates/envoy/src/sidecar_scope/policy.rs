//! The policy for traffic to unknown destinations.

use super::applied::Scope;
use navarch_api::istio::{Destination, OutboundTrafficPolicyMode as SidecarMode, Sidecar};
use navarch_api::mesh::OutboundTrafficPolicyMode as MeshMode;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The policy for traffic to unknown destinations.
#[derive(Clone, Debug, PartialEq)]
pub enum OutboundPolicy {
    /// Dropped.
    RegistryOnly,
    /// Allowed, through this service if set.
    AllowAny {
        /// The Sidecar's `egressProxy`.
        egress_proxy: Option<Destination>,
    },
    /// Allowed; the proxy resolves the host of HTTP requests or the SNI.
    AllowAnyDynamicDns,
}

/// The policy of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OutboundPolicyOf {
    pub(super) scope: Scope,
}

impl Query for OutboundPolicyOf {
    type Value = OutboundPolicy;

    fn compute(&self, view: &View<'_>) -> OutboundPolicy {
        let declared = match &self.scope {
            Scope::Gateway => return OutboundPolicy::RegistryOnly,
            Scope::Default => None,
            Scope::Sidecar(name) => view
                .object::<Sidecar>(name)
                .and_then(|sidecar| sidecar.spec.outbound_traffic_policy.as_ref()),
        };

        match declared {
            Some(policy) => match policy.mode {
                SidecarMode::RegistryOnly => OutboundPolicy::RegistryOnly,
                SidecarMode::AllowAny => OutboundPolicy::AllowAny {
                    egress_proxy: policy.egress_proxy.clone(),
                },
            },
            None => match view
                .mesh()
                .config
                .outbound_traffic_policy
                .as_ref()
                .map(|policy| policy.mode)
            {
                None | Some(MeshMode::RegistryOnly) => OutboundPolicy::RegistryOnly,
                Some(MeshMode::AllowAny) => OutboundPolicy::AllowAny { egress_proxy: None },
                Some(MeshMode::AllowAnyDynamicDns) => OutboundPolicy::AllowAnyDynamicDns,
            },
        }
    }
}
