//! Istio's annotations on Kubernetes' objects.

use super::annotation_table::find;
use super::annotation_values;
use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::INJECT;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;

/// Checks that Istio's annotations are known, on a kind that reads them, and have valid values.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "annotations.K8sAnalyzer",
    description: "Checks for misplaced and invalid Istio annotations in Kubernetes resources",
    inputs: &JUDGED,
    run,
}];

/// The kinds whose annotations are checked.
const JUDGED: [Kind; 4] = [Kind::Namespace, Kind::Service, Kind::Pod, Kind::Deployment];
/// Annotations that control planes set.
const IGNORED: [&str; 3] = [
    "sidecar.istio.io/status",
    "gateway.istio.io/controller-version",
    "istio.io/rev",
];

/// Judges annotations.
fn run(context: &Context, report: &mut Report) {
    for resource in JUDGED.into_iter().flat_map(|kind| context.each(kind)) {
        for (key, value) in resource
            .annotations
            .iter()
            .filter(|(key, _)| is_istio(key) && !IGNORED.contains(&key.as_str()))
        {
            let Some(annotation) = find(key) else {
                report.add(Message::new(
                    &messages::UNKNOWN_ANNOTATION,
                    resource,
                    parameters![key],
                ));
                continue;
            };

            // Who has the label, too, means both.
            let has_label = key == INJECT && resource.label(INJECT).is_some();
            if annotation.is_deprecated && !has_label {
                let instead = if key == INJECT {
                    " in favor of the \"sidecar.istio.io/inject\" label"
                } else {
                    ""
                };
                report.add(Message::new(
                    &messages::DEPRECATED_ANNOTATION,
                    resource,
                    parameters![key, instead],
                ));
            }

            if annotation.kinds.contains(&"Any") {
                continue;
            }

            if !annotation.kinds.contains(&resource.kind.as_str()) {
                let parameters = parameters![key, annotation.kinds.join(", ")];
                report.add(Message::new(
                    &messages::MISPLACED_ANNOTATION,
                    resource,
                    parameters,
                ));
            } else if let Err(problem) = annotation_values::check(key, value) {
                report.add(Message::new(
                    &messages::INVALID_ANNOTATION,
                    resource,
                    parameters![key, problem],
                ));
            }
        }
    }
}

/// Whether an annotation is Istio's, or one that Istio documents.
fn is_istio(key: &str) -> bool {
    key == "kubernetes.io/ingress.class"
        || key
            .split('/')
            .next()
            .is_some_and(|group| group.ends_with("istio.io"))
}
