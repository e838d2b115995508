//! EnvoyFilters: whether patches have the effect that is meant.

use navarch_api::istio::{ApplyTo, EnvoyConfigPatch, EnvoyFilter, EnvoyPatch, PatchOperation};
use serde_json::Value;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages::{self, MessageType};
use crate::parameters::parameters;

/// Checks for operations without effect, and for those whose effect depends on the order of
/// filters.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "envoyfilter.EnvoyPatchAnalyzer",
    description: "Checks an envoyFilters ",
    inputs: &[Kind::EnvoyFilter],
    run,
}];

/// The target of a patch.
#[derive(PartialEq, Eq)]
enum Subject {
    /// Nothing that has a name.
    Nameless,
    /// The filter that it matches.
    Matched(String),
    /// The filter that it writes.
    Written(String),
}

/// Checks the operations of patches.
fn run(context: &Context, report: &mut Report) {
    // Targets of patches for one version of proxies.
    let mut versioned: Vec<Subject> = Vec::new();

    for (resource, filter) in context.specs::<EnvoyFilter>() {
        for (index, config) in filter.config_patches.iter().enumerate() {
            let Some(patch) = &config.patch else { break };
            let subject = subject(config, patch);

            if let Some(kind) = fault(
                config.apply_to,
                patch.operation,
                filter.priority,
                versioned.contains(&subject),
            ) {
                let message = Message::new(kind, resource, parameters![]);
                report.add(message.at(&format!("spec.configPatches[{index}].patch.value")));
            }

            let proxy = config
                .matches
                .as_ref()
                .and_then(|matches| matches.proxy.as_ref());
            if proxy.is_some_and(|proxy| !proxy.proxy_version.is_empty()) {
                versioned.push(subject);
            }
        }
    }
}

/// The fault of an operation, if any.
fn fault(
    to: ApplyTo,
    operation: PatchOperation,
    priority: i32,
    is_versioned: bool,
) -> Option<&'static MessageType> {
    let is_ignored = matches!(to, ApplyTo::RouteConfiguration | ApplyTo::HttpRoute);
    let is_replaceable = matches!(
        to,
        ApplyTo::NetworkFilter | ApplyTo::HttpFilter | ApplyTo::VirtualHost
    );

    match operation {
        PatchOperation::Add if is_ignored => {
            return Some(&messages::ENVOY_FILTER_USES_ADD_OPERATION_INCORRECTLY);
        }
        PatchOperation::Remove if is_ignored => {
            return Some(&messages::ENVOY_FILTER_USES_REMOVE_OPERATION_INCORRECTLY);
        }
        PatchOperation::Replace if !is_replaceable => {
            return Some(&messages::ENVOY_FILTER_USES_REPLACE_OPERATION_INCORRECTLY);
        }
        PatchOperation::Remove
        | PatchOperation::Replace
        | PatchOperation::InsertBefore
        | PatchOperation::InsertAfter => {}
        PatchOperation::Invalid
        | PatchOperation::Merge
        | PatchOperation::Add
        | PatchOperation::InsertFirst
        | PatchOperation::MergeAndReplaceList => return None,
    }

    // The order among filters without a priority is not what was written.
    match (priority, is_versioned) {
        (0, true) => Some(&messages::ENVOY_FILTER_USES_RELATIVE_OPERATION_WITH_PROXY_VERSION),
        (0, false) => Some(&messages::ENVOY_FILTER_USES_RELATIVE_OPERATION),
        (_, _) => None,
    }
}

/// The target of a patch; `None` without a value.
fn subject(config: &EnvoyConfigPatch, patch: &EnvoyPatch) -> Subject {
    let Some(value) = &patch.value else {
        return Subject::Nameless;
    };

    if let Some(name) = value.get("name") {
        return Subject::Written(
            name.as_str()
                .map_or_else(|| Value::to_string(name), str::to_owned),
        );
    }

    let chain = config
        .matches
        .as_ref()
        .and_then(|matches| matches.listener.as_ref()?.filter_chain.as_ref());
    chain.map_or(Subject::Nameless, |chain| {
        let filter = chain.filter.as_ref();
        filter
            .filter(|filter| !filter.name.is_empty())
            .map_or(Subject::Nameless, |filter| {
                Subject::Matched(filter.name.clone())
            })
    })
}
