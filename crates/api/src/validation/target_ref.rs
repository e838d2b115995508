//! Rules for the targets of policies: a selector, or objects by name.

use super::Verdict;
use super::path::Path;
use super::scope::policy_selector;
use crate::istio::{PolicyTargetReference, PolicyWorkloadSelector};

/// The kinds of objects that a policy can target, with their groups.
const TARGETS: [(&str, &str); 4] = [
    ("core", "Service"),
    ("networking.istio.io", "ServiceEntry"),
    ("gateway.networking.k8s.io", "Gateway"),
    ("gateway.networking.k8s.io", "GatewayClass"),
];

/// Validates the target of a policy: at most one of selector, `targetRef` and `targetRefs`.
pub(super) fn attachment(
    verdict: &mut Verdict,
    spec: &Path<'_>,
    selector: Option<&PolicyWorkloadSelector>,
    target_ref: Option<&PolicyTargetReference>,
    target_refs: &[PolicyTargetReference],
) {
    let set = [
        selector.is_some(),
        target_ref.is_some(),
        !target_refs.is_empty(),
    ];

    if set.into_iter().filter(|set| *set).count() > 1 {
        verdict.error(
            &spec.field("targetRefs"),
            "is set together with another one of selector, targetRef and targetRefs",
        );
    }

    policy_selector(verdict, &spec.field("selector"), selector);
    if let Some(target) = target_ref {
        target_reference(verdict, &spec.field("targetRef"), target);
    }

    let all = spec.field("targetRefs");
    for (index, target) in target_refs.iter().enumerate() {
        target_reference(verdict, &all.item(index), target);
    }
}

/// Validates a reference to one object.
fn target_reference(verdict: &mut Verdict, at: &Path<'_>, target: &PolicyTargetReference) {
    let PolicyTargetReference {
        group,
        kind,
        name,
        namespace,
    } = target;

    if name.is_empty() {
        verdict.error(&at.field("name"), "is missing");
    }

    if !namespace.is_empty() {
        verdict.error(
            &at.field("namespace"),
            "is set, but policies apply only to objects of their own namespace; remove it",
        );
    }

    let group = if group.is_empty() { "core" } else { group };
    if !TARGETS.contains(&(group, kind)) {
        let known: Vec<String> = TARGETS
            .iter()
            .map(|(group, kind)| format!("{kind} ({group})"))
            .collect();
        verdict.error(
            at,
            format!(
                "is of kind {kind:?} ({group}); a policy can target {}",
                known.join(", ")
            ),
        );
    }
}
