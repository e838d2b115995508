//! The requests to an injector, and its responses.

use std::collections::BTreeMap;

use serde_json::Value;

/// A request to inject a pod before its creation.
#[derive(Clone, Copy, Debug)]
pub struct InjectRequest<'a> {
    /// The pod as JSON.
    pub pod: &'a Value,
    /// The namespace of the request; applies if the pod has no namespace.
    pub namespace: &'a str,
    /// The annotations of the namespace, if known. On OpenShift they contain the range of user IDs.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// Environment variables of the proxy from the request's path; see [`super::parameters()`].
    pub parameters: &'a BTreeMap<String, String>,
}

/// The result of an injection.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// The decision about the pod.
    pub outcome: InjectionOutcome,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
    /// Entries for the API server's audit log. The API server prefixes the keys with the webhook's
    /// name.
    pub audit: BTreeMap<String, String>,
}

/// The decision about a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum InjectionOutcome {
    /// The pod is not changed.
    Skipped(SkipReason),
    /// The pod is changed by this JSON patch (RFC 6902), a list of operations.
    Injected(Value),
}

impl Injection {
    /// The JSON patch, if the pod is changed.
    #[must_use]
    pub fn patch(&self) -> Option<&Value> {
        match &self.outcome {
            InjectionOutcome::Injected(patch) => Some(patch),
            InjectionOutcome::Skipped(_) => None,
        }
    }
}

/// Why a pod is not injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The pod uses the host network.
    HostNetwork,
    /// The pod is in a system namespace.
    SystemNamespace,
    /// The pod's label or annotation disables injection.
    Disabled,
    /// A `neverInjectSelector` of the config selects the pod.
    NeverSelector,
    /// The policy is `disabled`, and no label or annotation enables injection.
    Policy,
}

impl SkipReason {
    /// A sentence for users.
    #[must_use]
    pub fn explained(self) -> &'static str {
        match self {
            Self::HostNetwork => "the pod uses the host network",
            Self::SystemNamespace => "the namespace is a system namespace",
            Self::Disabled => "the pod's label or annotation sidecar.istio.io/inject disables it",
            Self::NeverSelector => "a neverInjectSelector of the config selects the pod",
            Self::Policy => {
                "the policy is disabled, and no label, annotation or selector enables injection"
            }
        }
    }

    /// A word for logs and audit entries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostNetwork => "host-network",
            Self::SystemNamespace => "system-namespace",
            Self::Disabled => "disabled",
            Self::NeverSelector => "never-inject-selector",
            Self::Policy => "policy",
        }
    }
}
