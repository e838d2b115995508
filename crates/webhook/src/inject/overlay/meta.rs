//! Labels and annotations of injected pods.

use std::collections::BTreeMap;

use super::super::context::Context;

/// The longest value of a label.
const MAX_LABEL: usize = 63;

/// What a label's value may not begin or end with.
const NOT_AT_ENDS: [char; 3] = ['-', '_', '.'];

/// A label's value cut to what Kubernetes allows.
pub(super) fn cut(value: &str) -> String {
    let (value, _) = value.split_at(value.floor_char_boundary(MAX_LABEL));
    value.trim_matches(NOT_AT_ENDS).to_owned()
}

/// The name under which a workload is one service, whatever its versions.
pub(super) fn canonical_name<'a>(context: &Context<'a>) -> &'a str {
    let names = ["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"];
    names.iter().find_map(|name| context.label(name)).unwrap_or(&context.workload.name)
}

fn canonical_revision<'a>(context: &Context<'a>) -> &'a str {
    let names = ["service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"];
    names.iter().find_map(|name| context.label(name)).unwrap_or("latest")
}

/// The labels that every template sets, with a canonical name.
pub(super) fn labels(context: &Context<'_>, canonical_name: String) -> BTreeMap<String, String> {
    let revision = canonical_revision(context).to_owned();
    [("service.istio.io/canonical-name", canonical_name), ("service.istio.io/canonical-revision", revision)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// The annotations that every template sets: the revision, and which container users mean when they name none.
pub(super) fn annotations(context: &Context<'_>) -> BTreeMap<String, String> {
    let revision = if context.revision.is_empty() { "default" } else { context.revision };
    let mut annotations = BTreeMap::from([("istio.io/rev".to_owned(), revision.to_owned())]);
    if let Some(first) = context.app_containers().next() {
        for name in ["kubectl.kubernetes.io/default-logs-container", "kubectl.kubernetes.io/default-container"] {
            if context.annotation(name).is_none() {
                annotations.insert(name.to_owned(), first.to_owned());
            }
        }
    }
    annotations
}
