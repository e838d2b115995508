//! AuthorizationPolicies.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use navarch_api::istio::AuthorizationPolicy;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::{is_pod_ambient, is_pod_in_mesh};
use crate::kind::Kind;
use crate::labels::{is_subset, text};
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Texts;

/// Checks that AuthorizationPolicies select pods and name namespaces that exist.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "auth.AuthorizationPoliciesAnalyzer",
    description: "Checks the validity of authorization policies",
    inputs: &[Kind::AuthorizationPolicy, Kind::Namespace, Kind::Pod],
    run,
}];

/// Checks that policies select pods, and that the namespaces which they name are there.
fn run(context: &Context, report: &mut Report) {
    let mut pods: BTreeMap<&str, Vec<&Texts>> = BTreeMap::new();

    for (resource, pod) in context.specs::<Pod>() {
        if is_pod_in_mesh(resource, pod, context) || is_pod_ambient(resource) {
            pods.entry(&resource.namespace)
                .or_default()
                .push(&resource.labels);
        }
    }

    let everywhere: Vec<&Texts> = pods.values().flatten().copied().collect();

    for (resource, policy) in context.specs::<AuthorizationPolicy>() {
        let selector = policy
            .selector
            .as_ref()
            .map(|selector| &selector.match_labels);
        let is_of_mesh = resource.namespace == context.mesh.config.root_namespace;
        let own = pods
            .get(resource.namespace.as_str())
            .map(Vec::as_slice)
            .unwrap_or_default();

        let reached = if is_of_mesh {
            everywhere.as_slice()
        } else {
            own
        };

        let is_effective = match selector {
            None => is_of_mesh || !own.is_empty(),
            Some(selector) => reached.iter().any(|labels| is_subset(selector, labels)),
        };
        if !is_effective {
            let selector = selector.map(text).unwrap_or_default();
            report.add(Message::new(
                &messages::NO_MATCHING_WORKLOADS_FOUND,
                resource,
                parameters![selector],
            ));
        }

        let sources = policy
            .rules
            .iter()
            .enumerate()
            .flat_map(|(rule_index, rule)| {
                let from = rule.from.iter().enumerate();
                from.filter_map(move |(index, from)| {
                    Some((rule_index, index, from.source.as_ref()?))
                })
            });

        for (rule, from, source) in sources {
            let named = source
                .namespaces
                .iter()
                .enumerate()
                .chain(source.not_namespaces.iter().enumerate());
            for (index, namespace) in
                named.filter(|(_, namespace)| !namespace_exists(context, namespace))
            {
                let parameters = parameters!["namespace", namespace];
                let message = Message::new(
                    &messages::REFERENCED_RESOURCE_NOT_FOUND,
                    resource,
                    parameters,
                );
                report.add(message.at(&format!(
                    "spec.rules[{rule}].from[{from}].source.namespaces[{index}]"
                )));
            }
        }
    }
}

/// Whether a name, with a wildcard at one end at most, matches some namespace.
fn namespace_exists(context: &Context, pattern: &str) -> bool {
    context.each(Kind::Namespace).any(|namespace| {
        let name = namespace.name.as_str();
        match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => name.ends_with(end),
            (None, Some(start)) => name.starts_with(start),
            (None, None) => name.eq_ignore_ascii_case(pattern),
        }
    })
}
