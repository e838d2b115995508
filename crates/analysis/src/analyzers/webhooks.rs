//! The webhooks of the injector.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::injection::matches;
use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::{INJECT, INJECTION, REVISION};
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::{Resource, Texts, full_name};

/// Checks that one injection webhook at most matches a pod, and that its Service exists.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "webhook.Analyzer",
    description: "Checks the validity of Istio webhooks",
    inputs: &[Kind::MutatingWebhookConfiguration, Kind::Service],
    run,
}];

/// A webhook, its object, and the name of both.
struct Hook<'a> {
    resource: &'a Arc<Resource>,
    hook: &'a MutatingWebhook,
    /// `object/webhook`.
    name: String,
}

/// Reports overlapping injection webhooks, and those without an existing Service.
fn run(context: &Context, report: &mut Report) {
    let mut hooks = Vec::new();
    let mut revisions = BTreeSet::new();

    for (resource, configuration) in context.specs::<MutatingWebhookConfiguration>() {
        let own = revisions_of(resource, configuration);
        let all = || configuration.webhooks.iter().flatten();
        if own.is_empty() && !all().any(|hook| hook.name.ends_with("istio.io")) {
            continue;
        }
        revisions.extend(own);
        hooks.extend(all().map(|hook| Hook {
            resource,
            hook,
            name: format!("{}/{}", resource.full_name(), hook.name),
        }));
    }

    let namespaces = label_sets(INJECTION, ["enabled", "disabled"], &revisions);
    let objects = label_sets(INJECT, ["true", "false"], &revisions);

    for namespace in &namespaces {
        for object in &objects {
            let matching: Vec<_> = hooks
                .iter()
                .filter(|hook| matches(hook.hook, namespace, object))
                .collect();
            let names: BTreeSet<_> = matching.iter().map(|hook| hook.name.as_str()).collect();
            if names.len() < 2 {
                continue;
            }

            for hook in matching {
                let others: Vec<_> = names
                    .iter()
                    .copied()
                    .filter(|name| *name != hook.name)
                    .collect();
                let detail = format!(
                    "Webhook overlaps with others: [{}]. This may cause injection to occur twice.",
                    others.join(" ")
                );

                report.add(Message::new(
                    &messages::INVALID_WEBHOOK,
                    hook.resource,
                    parameters![detail],
                ));
            }
        }
    }

    for hook in &hooks {
        let Some(service) = &hook.hook.client_config.service else {
            continue;
        };

        if context
            .find(Kind::Service, &service.namespace, &service.name)
            .is_none()
        {
            let name = full_name(&service.namespace, &service.name);
            let detail =
                format!("Injector refers to a control plane service that does not exist: {name}.");
            report.add(Message::new(
                &messages::INVALID_WEBHOOK,
                hook.resource,
                parameters![detail],
            ));
        }
    }
}

/// The sets of labels that decide about injection: none, or one of two values, each without a
/// revision and with each.
fn label_sets(key: &str, values: [&str; 2], revisions: &BTreeSet<String>) -> Vec<Texts> {
    let mut sets = Vec::new();
    for revision in std::iter::once(None).chain(revisions.iter().map(Some)) {
        for value in std::iter::once(None).chain(values.into_iter().map(Some)) {
            let revision = revision.map(|revision| (REVISION.to_owned(), revision.clone()));
            let value = value.map(|value| (key.to_owned(), value.to_owned()));
            sets.push(revision.into_iter().chain(value).collect());
        }
    }
    sets
}

fn revisions_of(
    resource: &Resource,
    configuration: &MutatingWebhookConfiguration,
) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = resource
        .label(REVISION)
        .map(str::to_owned)
        .into_iter()
        .collect();
    let hooks = configuration.webhooks.iter().flatten();
    for selector in hooks
        .flat_map(|hook| [&hook.namespace_selector, &hook.object_selector])
        .flatten()
    {
        let LabelSelector {
            match_labels,
            match_expressions,
        } = selector;
        found.extend(
            match_labels
                .iter()
                .filter_map(|labels| labels.get(REVISION).cloned()),
        );
        let expressions = match_expressions
            .iter()
            .flatten()
            .filter(|expression| expression.key == REVISION);
        found
            .extend(expressions.flat_map(|expression| expression.values.iter().flatten().cloned()));
    }

    found
}
