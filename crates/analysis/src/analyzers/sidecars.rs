//! Sidecars: which pods they are for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::istio::Sidecar;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::{is_namespace_ambient, is_pod_ambient};
use crate::kind::Kind;
use crate::labels::{first_key, text};
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;

/// Checks that Sidecars select pods, each of them alone.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "sidecar.SelectorAnalyzer",
    description: "Validates that sidecars that define a workload selector match at least one pod, and that there aren't multiple \
                  sidecar resources that select overlapping pods",
    inputs: &[Kind::Sidecar, Kind::Pod, Kind::Namespace],
    run,
}];

/// The names of some objects, in order.
pub(super) fn names(objects: &[&Arc<Resource>]) -> Vec<String> {
    let mut names: Vec<_> = objects.iter().map(|object| object.name.clone()).collect();
    names.sort_unstable();
    names
}

/// A pod with the Sidecars that select it.
type Selected<'a> = (&'a Arc<Resource>, Vec<&'a Arc<Resource>>);

/// Finds Sidecars that select no pod, or a pod that another Sidecar selects.
fn run(context: &Context, report: &mut Report) {
    let mut by_pod: BTreeMap<(&str, &str), Selected<'_>> = BTreeMap::new();
    let mut by_namespace: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();

    for (resource, sidecar) in context.specs::<Sidecar>() {
        let Some(selector) = sidecar
            .workload_selector
            .as_ref()
            .filter(|selector| !selector.labels.is_empty())
        else {
            by_namespace
                .entry(&resource.namespace)
                .or_default()
                .push(resource);
            continue;
        };

        let mut is_found = false;
        for pod in context
            .pods_with(&selector.labels)
            .filter(|pod| pod.namespace == resource.namespace)
        {
            is_found = true;
            by_pod
                .entry((&pod.namespace, &pod.name))
                .or_insert((pod, Vec::new()))
                .1
                .push(resource);
        }

        if !is_found {
            let parameters = parameters!["selector", text(&selector.labels)];
            let message = Message::new(
                &messages::REFERENCED_RESOURCE_NOT_FOUND,
                resource,
                parameters,
            );
            report.add(message.at(&format!(
                "spec.workloadSelector.labels.{}",
                first_key(&selector.labels)
            )));
        }
    }

    // A Sidecar without effect is reported once.
    let mut reported = BTreeSet::new();
    let mut ineffective = |report: &mut Report, resource: &Arc<Resource>, reason: &str| {
        if reported.insert(resource.full_name()) {
            report.add(Message::new(
                &messages::INEFFECTIVE_POLICY,
                resource,
                parameters![reason],
            ));
        }
    };

    for ((namespace, name), (pod, sidecars)) in &by_pod {
        let conflicting = names(sidecars);

        for resource in sidecars {
            if is_pod_ambient(pod) {
                ineffective(
                    report,
                    resource,
                    "selected workload is in ambient mode, the policy has no impact",
                );
            } else if sidecars.len() > 1 {
                let parameters = parameters![conflicting.clone(), *namespace, *name];
                let message = Message::new(
                    &messages::CONFLICTING_SIDECAR_WORKLOAD_SELECTORS,
                    resource,
                    parameters,
                );
                report.add(message.at("metadata.name"));
            }
        }
    }

    for (namespace, sidecars) in &by_namespace {
        let is_ambient = context
            .namespace(namespace)
            .is_some_and(|namespace| is_namespace_ambient(namespace));
        let conflicting = names(sidecars);

        for resource in sidecars {
            if is_ambient {
                ineffective(
                    report,
                    resource,
                    "namespace is in ambient mode, the policy has no impact",
                );
            } else if sidecars.len() > 1 {
                let parameters = parameters![conflicting.clone(), *namespace];
                report.add(Message::new(
                    &messages::MULTIPLE_SIDECARS_WITHOUT_WORKLOAD_SELECTORS,
                    resource,
                    parameters,
                ));
            }
        }
    }
}
