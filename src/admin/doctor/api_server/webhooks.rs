//! Whether the webhooks of the control plane are registered at the API server.

use std::sync::Arc;

use navarch_answers::doctor::{Check, Health, Level, MAX_FINDINGS_PER_CHECK};
use navarch_webhook::registration::{self, FoundWebhooks, HookKind};

/// The required webhook configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// The kinds that this control plane maintains.
    pub kinds: Vec<HookKind>,
    /// The revision with which they are labelled.
    pub revision: String,
}

/// The webhook configurations, once their roots are known. Kinds that may not be listed are
/// reported with the missing rights.
pub(super) async fn found(
    client: &kube::Client,
    hooks: &Hooks,
    roots: Option<Arc<str>>,
) -> Vec<(HookKind, FoundWebhooks)> {
    let mut all = Vec::new();
    let Some(roots) = roots else { return all };
    for kind in &hooks.kinds {
        let found = registration::look(client, *kind, &hooks.revision, &roots).await;
        all.extend(found.ok().map(|found| (*kind, found)));
    }
    all
}

/// Webhooks that are not registered, or have an outdated CA.
pub(super) fn check(kind: HookKind, seen: &FoundWebhooks, revision: &str, health: &mut Health) {
    let (lost, resource) = match kind {
        HookKind::Mutating => ("pods are not injected", "mutatingwebhookconfigurations"),
        HookKind::Validating => (
            "objects are not validated when they are written",
            "validatingwebhookconfigurations",
        ),
    };

    let next = format!("kubectl get {resource} -l istio.io/rev={revision} -o yaml");

    if seen.all.is_empty() {
        let what = format!("no {resource} has the label istio.io/rev={revision}: {lost}");
        health.add(Check::Webhooks, Level::Note, what, &next);
    }

    for name in seen.without_roots.iter().take(MAX_FINDINGS_PER_CHECK) {
        let what = format!(
            "caBundle of {name} ({resource}) lacks a root of the webhooks' certificate: {lost}"
        );
        health.add(Check::Webhooks, Level::Wrong, what, &next);
    }

    health.more(Check::Webhooks, seen.without_roots.len(), resource, &next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_webhooks_and_missing_roots_are_reported() {
        let findings = |all: &[&str], without_roots: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let seen = FoundWebhooks {
                all: owned(all),
                without_roots: owned(without_roots),
            };
            let mut health = Health::default();
            check(HookKind::Mutating, &seen, "canary", &mut health);
            health
                .findings
                .into_iter()
                .map(|finding| (finding.level, finding.what))
                .collect::<Vec<_>>()
        };

        assert_eq!(findings(&["a"], &[]), []);
        let none = "no mutatingwebhookconfigurations has the label istio.io/rev=canary: pods are not injected";
        assert_eq!(findings(&[], &[]), [(Level::Note, none.to_owned())]);
        let lacks = "caBundle of a (mutatingwebhookconfigurations) lacks a root of the webhooks' certificate: pods are not injected";
        assert_eq!(
            findings(&["a", "b"], &["a"]),
            [(Level::Wrong, lacks.to_owned())]
        );
    }
}
