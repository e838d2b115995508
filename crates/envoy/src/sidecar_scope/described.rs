//! A proxy's whole scope, for debugging (`/debug/sidecarz`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    OutboundPolicy, egress_listeners, host_service, listener_service, listener_services,
    outbound_policy,
};
use super::{sidecar, visible_services};
use crate::destination_rule::{self, MergedRule};
use navarch_api::istio::{DestinationRule, Sidecar};
use navarch_api::names::Hostname;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Service;

/// Returns the scope of the view's proxy, at the cost of all visible services: to be run on a copy
/// of the engine, not on the push thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DescribeScope;

/// The scope of a proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeDescription {
    /// The Sidecar that applies to it, if any.
    pub sidecar: Option<Arc<Object<Sidecar>>>,
    /// The policy for traffic to unknown destinations; `None` if it could not be determined.
    pub outbound_policy: Option<OutboundPolicy>,
    /// The visible services, in Istio's order.
    pub services: Vec<Arc<Service>>,
    /// The services of each egress listener.
    pub listeners: Vec<Vec<Arc<Service>>>,
    /// The candidate DestinationRules for visible services, by the service's host.
    pub destination_rules: BTreeMap<Hostname, Vec<RuleDescription>>,
}

/// One or more merged DestinationRules of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleDescription {
    /// Namespaces that see it; empty means the mesh default.
    pub export_to: BTreeSet<String>,
    /// The first of the rules, with the settings of the others.
    pub rule: Object<DestinationRule>,
    /// All rules that were merged, in the order of merging; the first is `rule` itself.
    pub from: Vec<NamespacedName>,
}

impl Query for DescribeScope {
    type Value = ScopeDescription;

    fn compute(&self, view: &View<'_>) -> ScopeDescription {
        let services: Vec<_> = visible_services(view)
            .iter()
            .filter_map(|key| host_service(view, &key.hostname))
            .collect();
        let rule = |merged: &Arc<MergedRule>| {
            let rule = destination_rule::object_of(view, merged)?;
            Some(RuleDescription {
                export_to: merged.export_to.clone(),
                rule,
                from: merged.from.clone(),
            })
        };

        let rules = |service: &Arc<Service>| {
            let all = destination_rule::all_for_service(view, service);
            let rules: Vec<RuleDescription> = all.iter().filter_map(rule).collect();
            (!rules.is_empty()).then(|| (service.key.hostname.clone(), rules))
        };

        let listener = |number: usize| {
            let all = listener_services(view, number);
            all.iter()
                .filter_map(|service| listener_service(view, number, service))
                .collect()
        };

        ScopeDescription {
            sidecar: sidecar(view).cloned(),
            outbound_policy: Some(outbound_policy(view)),
            destination_rules: services.iter().filter_map(rules).collect(),
            listeners: (0..egress_listeners(view).len()).map(listener).collect(),
            services,
        }
    }

    fn fallback(&self, _: Option<&ScopeDescription>) -> Option<ScopeDescription> {
        Some(ScopeDescription::default())
    }
}
