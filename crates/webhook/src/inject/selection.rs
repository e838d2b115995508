//! Selection of the pods to inject.

use serde_json::{Map, Value};

use super::config::InjectionConfig;
use super::names::INJECT;
use super::pod;
use super::request::SkipReason;
use navarch_api::mesh::LabelSelector;
use navarch_api::text_map::TextMap;

/// System namespaces, in which no pod is injected.
const SYSTEM_NAMESPACES: [&str; 4] = [
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "local-path-storage",
];

/// The pod's own choice.
enum Requested {
    /// The pod enables injection.
    Yes,
    /// The pod disables injection.
    No,
    /// The pod has no choice, or an invalid one.
    Silent,
}

/// Why a pod in a namespace is not injected; `None` if it is injected.
pub(super) fn skipped(
    config: &InjectionConfig,
    pod: &Value,
    namespace: &str,
) -> Option<SkipReason> {
    if pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)) {
        return Some(SkipReason::HostNetwork);
    }
    if SYSTEM_NAMESPACES.contains(&namespace) {
        return Some(SkipReason::SystemNamespace);
    }
    match requested(pod) {
        Requested::Yes => None,
        Requested::No => Some(SkipReason::Disabled),
        Requested::Silent => by_selectors(config, pod::labels(pod)),
    }
}

/// The pod's own choice: from the label, else from the annotation.
fn requested(pod: &Value) -> Requested {
    let value = pod::label(pod, INJECT).or_else(|| pod::annotation(pod, INJECT));
    match value {
        Some("true") => Requested::Yes,
        Some("false") => Requested::No,
        Some(_) | None => Requested::Silent,
    }
}

/// The decision of selectors and policy for a pod without a choice.
fn by_selectors(
    config: &InjectionConfig,
    labels: Option<&Map<String, Value>>,
) -> Option<SkipReason> {
    if !config.never_inject_selector.is_empty() || !config.always_inject_selector.is_empty() {
        let labels = label_map(labels);
        let any = |selectors: &[LabelSelector]| {
            selectors.iter().any(|selector| selector.selects(&labels))
        };
        if any(&config.never_inject_selector) {
            return Some(SkipReason::NeverSelector);
        }
        if any(&config.always_inject_selector) {
            return None;
        }
    }
    (config.policy != "enabled").then_some(SkipReason::Policy)
}

/// Labels in the type that selectors match.
fn label_map(labels: Option<&Map<String, Value>>) -> TextMap {
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
        .collect()
}
