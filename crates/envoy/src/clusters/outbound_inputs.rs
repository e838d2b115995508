//! The inputs of an outbound cluster, which its traffic policy reads as well.

use crate::destination_rule::MergedRule;
use crate::names::OutboundCluster;
use navarch_api::istio::{SimpleLb, Subset, TrafficPolicy};
use navarch_registry::model::{Service, ServicePort};

/// The type of client of an outbound cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Client,
    /// A gateway that passes mutual TLS through, without terminating or originating it.
    SniRouted,
}

/// The inputs of one outbound cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outbound<'a> {
    /// Its parsed name.
    pub(super) name: &'a OutboundCluster,
    pub(super) service: &'a Service,
    pub(super) port: &'a ServicePort,
    /// The DestinationRule that applies.
    pub(super) rule: Option<&'a MergedRule>,
    pub(super) subset: Option<&'a Subset>,
    pub(super) purpose: Purpose,
}

/// Whether a policy sends connections to the original destination.
pub(super) fn is_passthrough(policy: &TrafficPolicy) -> bool {
    policy
        .load_balancer
        .as_deref()
        .is_some_and(|settings| settings.simple == Some(SimpleLb::Passthrough))
}
