//! Policies for backends, translated to DestinationRules: one for each target and host, merged from
//! all policies for it (istiod's `backend_policies.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::PARENTS;
use super::backend_policy::{BackendPolicy, PolicyPort, PolicyTargetObject, PortsOfTarget};
use super::tls_policies::TlsPolicyForms;
use super::traffic_policies::{BackendForms, TrafficPolicyForms};
use navarch_api::gateway_api::{BackendTlsPolicy, XBackend, XBackendTrafficPolicy};
use navarch_api::istio::{
    ClientTlsSettings, DestinationRule, PortSelector, PortTrafficPolicy, TrafficPolicy,
};
use navarch_api::object::{Object, ObjectMeta, ObjectsByName};
use navarch_push::query::Query;
use navarch_push::view::View;

/// All DestinationRules that are generated from policies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiDestinationRules;

impl Query for ApiDestinationRules {
    type Value = ObjectsByName<DestinationRule>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut policies: Vec<BackendPolicy> = Vec::new();

        for name in view.names::<XBackendTrafficPolicy>() {
            policies.extend(
                view.get(&TrafficPolicyForms(name.clone()))
                    .iter()
                    .flat_map(|forms| forms.policies.clone()),
            );
        }

        for name in view.names::<BackendTlsPolicy>() {
            policies.extend(
                view.get(&TlsPolicyForms(name.clone()))
                    .iter()
                    .flat_map(|forms| forms.policies.clone()),
            );
        }

        for name in view.names::<XBackend>() {
            policies.extend(
                view.get(&BackendForms(name.clone()))
                    .iter()
                    .flat_map(|forms| forms.policies.clone()),
            );
        }

        let mut by_host: BTreeMap<(PolicyTargetObject, String), Vec<BackendPolicy>> =
            BTreeMap::new();

        for policy in policies {
            by_host
                .entry((policy.target.clone(), policy.host.clone()))
                .or_default()
                .push(policy);
        }

        let rules = by_host.into_iter().map(|((target, host), mut policies)| {
            policies.sort_by(|a, b| {
                a.created
                    .cmp(&b.created)
                    .then_with(|| a.source.1.cmp(&b.source.1))
            });
            let rule = rule(view, &target, &host, &policies);
            (rule.meta.key(), Arc::new(rule))
        });

        rules.collect()
    }
}

/// The DestinationRule of a host, from policies sorted by age.
fn rule(
    view: &View<'_>,
    target: &PolicyTargetObject,
    host: &str,
    policies: &[BackendPolicy],
) -> Object<DestinationRule> {
    let mut traffic = TrafficPolicy::default();
    let mut ports: BTreeMap<PolicyPort, ClientTlsSettings> = BTreeMap::new();
    let mut parents: Vec<String> = Vec::new();

    for policy in policies {
        if let Some(tls) = &policy.tls {
            match &policy.port {
                PolicyPort::All if traffic.tls.is_some() => continue,
                PolicyPort::All => traffic.tls = Some(Box::new(tls.clone())),
                port @ (PolicyPort::Named(_) | PolicyPort::Number(_)) => {
                    ports.entry(port.clone()).or_insert_with(|| tls.clone());
                }
            }
        }

        if let Some(budget) = &policy.traffic {
            if traffic.load_balancer.is_some() {
                continue;
            }
            traffic.load_balancer = Some(Box::default());
            if let Some(budget) = budget {
                if traffic.retry_budget.is_some() {
                    continue;
                }
                traffic.retry_budget = Some(budget.clone());
            }
        }

        let parent = format!(
            "{}/{}.{}",
            policy.source.0, policy.source.1.namespace, policy.source.1.name
        );
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }

    let known = view.get(&PortsOfTarget(target.clone()));
    let number = |port: &PolicyPort| match port {
        PolicyPort::Named(name) => known
            .as_ref()
            .as_ref()
            .and_then(|known| known.get(name))
            .copied()
            .unwrap_or_default(),
        PolicyPort::Number(number) => *number,
        PolicyPort::All => 0,
    };

    let settings = ports.iter().map(|(port, tls)| PortTrafficPolicy {
        port: Some(PortSelector {
            number: number(port),
        }),
        tls: Some(Box::new(tls.clone())),
        ..PortTrafficPolicy::default()
    });

    traffic.port_level_settings = settings.collect();
    traffic
        .port_level_settings
        .sort_by_key(|settings| settings.port.as_ref().map(|port| port.number));
    let meta = ObjectMeta {
        key: target.rule_name(host),
        annotations: [(Arc::from(PARENTS), Arc::from(parents.join(",")))]
            .into_iter()
            .collect(),
        ..ObjectMeta::default()
    };

    let spec = DestinationRule {
        host: host.to_owned(),
        traffic_policy: Some(Box::new(traffic)),
        ..DestinationRule::default()
    };
    Object { meta, spec }
}
