//! Labels and annotations of injected pods.

use std::collections::BTreeMap;

use super::super::context::Context;

/// The maximum length of a label value.
const MAX_LABEL: usize = 63;

/// Characters that a label value may not start or end with.
const NOT_AT_ENDS: [char; 3] = ['-', '_', '.'];

/// Truncates a label value to Kubernetes' limit.
pub(super) fn cut(value: &str) -> String {
    let (value, _) = value.split_at(value.floor_char_boundary(MAX_LABEL));
    value.trim_matches(NOT_AT_ENDS).to_owned()
}

/// The canonical service name of a workload, common to all of its versions.
pub(super) fn canonical_name<'a>(context: &Context<'a>) -> &'a str {
    let names = [
        "service.istio.io/canonical-name",
        "app.kubernetes.io/name",
        "app",
    ];
    names
        .iter()
        .find_map(|name| context.label(name))
        .unwrap_or(&context.workload.name)
}

fn canonical_revision<'a>(context: &Context<'a>) -> &'a str {
    let names = [
        "service.istio.io/canonical-revision",
        "app.kubernetes.io/version",
        "version",
    ];
    names
        .iter()
        .find_map(|name| context.label(name))
        .unwrap_or("latest")
}

/// The labels of every template, with a canonical name.
pub(super) fn labels(context: &Context<'_>, canonical_name: String) -> BTreeMap<String, String> {
    let revision = canonical_revision(context).to_owned();
    [
        ("service.istio.io/canonical-name", canonical_name),
        ("service.istio.io/canonical-revision", revision),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The annotations of every template: the revision, and the default container for kubectl.
pub(super) fn annotations(context: &Context<'_>) -> BTreeMap<String, String> {
    let revision = if context.revision.is_empty() {
        "default"
    } else {
        context.revision
    };
    let mut annotations = BTreeMap::from([("istio.io/rev".to_owned(), revision.to_owned())]);
    if let Some(first) = context.app_containers().next() {
        for name in [
            "kubectl.kubernetes.io/default-logs-container",
            "kubectl.kubernetes.io/default-container",
        ] {
            if context.annotation(name).is_none() {
                annotations.insert(name.to_owned(), first.to_owned());
            }
        }
    }
    annotations
}
