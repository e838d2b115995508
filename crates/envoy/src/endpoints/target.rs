//! The cluster whose endpoints are built, and how the proxy reaches them.

use crate::destination_rule::MergedRule;
use navarch_api::istio::{Subset, TrafficPolicy};
use navarch_registry::model::Service;

/// The cluster whose endpoints are built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) service: &'a Service,
    pub(crate) port: u16,
    /// The DestinationRule that applies.
    pub(crate) rule: Option<&'a MergedRule>,
    /// The subset, if any.
    pub(crate) subset: Option<&'a Subset>,
    /// The policy of the port: the subset's overrides the host's, without mesh defaults.
    pub(crate) policy: Option<&'a TrafficPolicy>,
    /// Whether a gateway passes mutual TLS through to it.
    pub(crate) sni_routed: bool,
    /// Whether the proxy resolves names.
    pub(crate) by_dns: bool,
    /// How endpoints are reached.
    pub(crate) way: EndpointPath,
}

/// How endpoints are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointPath {
    Client,
    /// From the waypoint of the service.
    OfWaypoint,
    /// Endpoints are waypoints, which forward to a port of the service.
    ToWaypoint,
}
