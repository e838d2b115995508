//! Telemetries: which pods they are for, and which providers they name.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::istio::Telemetry;

use super::sidecars::names;
use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::labels::{first_key, text};
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;

/// Checks that providers are usable, and that Telemetries select pods, each of them alone.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "telemetry.ProviderAnalyzer",
        description: "Validates that providers in telemetry resource is valid",
        inputs: &[Kind::Telemetry],
        run: providers,
    },
    Analyzer {
        name: "telemetry.SelectorAnalyzer",
        description: "Validates that telemetries that define a selector match at least one pod, and that there aren't multiple \
                      telemetry resources that select overlapping pods",
        inputs: &[Kind::Telemetry, Kind::Pod],
        run: selectors,
    },
    Analyzer {
        name: "telemetry.DefaultSelectorAnalyzer",
        description: "Validates that there aren't multiple telemetry resources that have no selector",
        inputs: &[Kind::Telemetry],
        run: without_selector,
    },
    Analyzer {
        name: "telemetry.LightstepAnalyzer",
        description: "Validates that lightstep provider is still used",
        inputs: &[Kind::Telemetry],
        run: lightstep,
    },
];

/// Warns of access logs that go nowhere.
fn providers(context: &Context, report: &mut Report) {
    if !context
        .mesh
        .config
        .default_providers
        .access_logging
        .is_empty()
    {
        return;
    }

    for (resource, telemetry) in context.specs::<Telemetry>() {
        let mut logs = telemetry
            .access_logging
            .iter()
            .filter(|log| log.disabled != Some(true));
        if logs.any(|log| log.providers.is_empty()) {
            let parameters = parameters![&resource.name, &resource.namespace];
            report.add(Message::new(
                &messages::INVALID_TELEMETRY_PROVIDER,
                resource,
                parameters,
            ));
        }
    }
}

/// Finds Telemetries that select no pod, or a pod that another Telemetry selects.
fn selectors(context: &Context, report: &mut Report) {
    let mut by_pod: BTreeMap<(&str, &str), Vec<&Arc<Resource>>> = BTreeMap::new();

    for (resource, telemetry) in context.specs::<Telemetry>() {
        let Some(selector) = telemetry
            .selector
            .as_ref()
            .filter(|selector| !selector.match_labels.is_empty())
        else {
            continue;
        };

        let mut is_found = false;
        for pod in context
            .pods_with(&selector.match_labels)
            .filter(|pod| pod.namespace == resource.namespace)
        {
            is_found = true;
            by_pod
                .entry((&pod.namespace, &pod.name))
                .or_default()
                .push(resource);
        }

        if !is_found {
            let parameters = parameters!["selector", text(&selector.match_labels)];
            let message = Message::new(
                &messages::REFERENCED_RESOURCE_NOT_FOUND,
                resource,
                parameters,
            );
            report.add(message.at(&format!(
                "spec.selector.matchLabels.{}",
                first_key(&selector.match_labels)
            )));
        }
    }

    for ((namespace, name), telemetries) in by_pod
        .iter()
        .filter(|(_, telemetries)| telemetries.len() > 1)
    {
        let conflicting = names(telemetries);
        for resource in telemetries {
            let parameters = parameters![conflicting.clone(), *namespace, *name];
            let message = Message::new(
                &messages::CONFLICTING_TELEMETRY_WORKLOAD_SELECTORS,
                resource,
                parameters,
            );
            report.add(message.at("metadata.name"));
        }
    }
}

/// Finds namespaces with several Telemetries for all of their pods.
fn without_selector(context: &Context, report: &mut Report) {
    let mut by_namespace: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();
    for (resource, _) in context
        .specs::<Telemetry>()
        .filter(|(_, telemetry)| telemetry.selector.is_none())
    {
        by_namespace
            .entry(&resource.namespace)
            .or_default()
            .push(resource);
    }

    for (namespace, telemetries) in by_namespace
        .iter()
        .filter(|(_, telemetries)| telemetries.len() > 1)
    {
        let conflicting = names(telemetries);
        for resource in telemetries {
            let parameters = parameters![conflicting.clone(), *namespace];
            report.add(Message::new(
                &messages::MULTIPLE_TELEMETRIES_WITHOUT_WORKLOAD_SELECTORS,
                resource,
                parameters,
            ));
        }
    }
}

/// Warns of a provider that is to go away.
fn lightstep(context: &Context, report: &mut Report) {
    let providers = context
        .mesh
        .config
        .extension_providers
        .iter()
        .filter(|provider| provider.lightstep.is_some());

    let names: Vec<_> = providers.map(|provider| provider.name.as_str()).collect();

    for (resource, telemetry) in context.specs::<Telemetry>() {
        let used = telemetry
            .tracing
            .iter()
            .flat_map(|tracing| &tracing.providers);
        for provider in used.filter(|provider| names.contains(&provider.name.as_str())) {
            let detail = format!(
                "The Lightstep provider {} is deprecated, please migrate to OpenTelemetry provider.",
                provider.name
            );
            report.add(Message::new(
                &messages::DEPRECATED,
                resource,
                parameters![detail],
            ));
        }
    }
}
