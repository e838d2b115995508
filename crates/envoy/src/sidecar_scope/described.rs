//! A proxy's scope as a whole, for people to read (`/debug/sidecarz`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{OutboundPolicy, egress_listeners, host_service, listener_service, listener_services, outbound_policy};
use super::{sidecar, visible_services};
use crate::destination_rule::{self, MergedRule};
use navarch_api::istio::{DestinationRule, Sidecar};
use navarch_api::names::Hostname;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Service;

/// Asks for the scope of the view's proxy. Costs what the proxy sees: for an engine of the asker's own, not for the push
/// thread's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DescribeScope;

/// What a proxy sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeDescription {
    /// The Sidecar that holds for it, if one does.
    pub sidecar: Option<Arc<Object<Sidecar>>>,
    /// What becomes of traffic to unknown places; `None` where that could not be found out.
    pub outbound_policy: Option<OutboundPolicy>,
    /// The services that it sees, in Istio's order.
    pub services: Vec<Arc<Service>>,
    /// The services of each egress listener.
    pub listeners: Vec<Vec<Arc<Service>>>,
    /// The DestinationRules that it chooses from for the services that it sees, by the service's host.
    pub destination_rules: BTreeMap<Hostname, Vec<RuleDescription>>,
}

/// One or more DestinationRules of a host that count as one.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleDescription {
    /// Namespaces that see it; empty is the mesh's default.
    pub export_to: BTreeSet<String>,
    /// The first of the rules, with what the others add to it.
    pub rule: Object<DestinationRule>,
    /// All of the rules.
    pub from: Vec<NamespacedName>,
}

impl Query for DescribeScope {
    type Value = ScopeDescription;

    fn compute(&self, view: &View<'_>) -> ScopeDescription {
        let services: Vec<_> =
            visible_services(view).iter().filter_map(|key| host_service(view, &key.hostname)).collect();
        let rule = |merged: &Arc<MergedRule>| {
            let rule = destination_rule::object_of(view, merged)?;
            Some(RuleDescription { export_to: merged.export_to.clone(), rule, from: merged.from.clone() })
        };
        let rules = |service: &Arc<Service>| {
            let all = destination_rule::all_for_service(view, service);
            let rules: Vec<RuleDescription> = all.iter().filter_map(rule).collect();
            (!rules.is_empty()).then(|| (service.key.hostname.clone(), rules))
        };
        let listener = |number: usize| {
            let all = listener_services(view, number);
            all.iter().filter_map(|service| listener_service(view, number, service)).collect()
        };
        ScopeDescription {
            sidecar: sidecar(view).cloned(),
            outbound_policy: Some(outbound_policy(view)),
            destination_rules: services.iter().filter_map(rules).collect(),
            listeners: (0..egress_listeners(view).len()).map(listener).collect(),
            services,
        }
    }

    fn rescue(&self, _: Option<&ScopeDescription>) -> Option<ScopeDescription> {
        Some(ScopeDescription::default())
    }
}
