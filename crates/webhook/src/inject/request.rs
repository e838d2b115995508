//! What is asked of an injector, and what it answers.

use std::collections::BTreeMap;

use serde_json::Value;

/// A pod that is about to be created.
#[derive(Clone, Copy, Debug)]
pub struct InjectRequest<'a> {
    /// The pod as JSON.
    pub pod: &'a Value,
    /// The namespace of the request; it holds where the pod names none.
    pub namespace: &'a str,
    /// The annotations of that namespace, where known. OpenShift gives out user ids there.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// Environment for the proxy that came with the request's path; see [`super::parameters()`].
    pub parameters: &'a BTreeMap<String, String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// What becomes of the pod.
    pub outcome: Outcome,
    /// What the user should know, one sentence each.
    pub warnings: Vec<String>,
    /// What was done, for the API server's audit log. Keys are without the webhook's name, which the API server adds.
    pub audit: BTreeMap<String, String>,
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It stays as it is.
    Skipped(SkipReason),
    /// It is changed by this JSON patch (RFC 6902), a list of operations.
    Injected(Value),
}

impl Injection {
    /// The JSON patch, where the pod is changed.
    #[must_use]
    pub fn patch(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Injected(patch) => Some(patch),
            Outcome::Skipped(_) => None,
        }
    }
}

/// Why a pod gets no proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// It shares its node's network.
    HostNetwork,
    /// Its namespace is the system's.
    SystemNamespace,
    /// Its label or annotation says so.
    Disabled,
    /// A selector of the config forbids it.
    NeverSelector,
    /// The policy injects only where a label or annotation asks for it.
    Policy,
}

impl SkipReason {
    /// What it means, for users.
    #[must_use]
    pub fn explained(self) -> &'static str {
        match self {
            Self::HostNetwork => "the pod shares its node's network",
            Self::SystemNamespace => "the namespace is the system's",
            Self::Disabled => "the pod's label or annotation sidecar.istio.io/inject says so",
            Self::NeverSelector => "a neverInjectSelector of the config selects the pod",
            Self::Policy => "the policy is disabled, and nothing asks for the pod to be injected",
        }
    }

    /// A word for logs and audit annotations.
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
