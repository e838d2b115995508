//! Learned scopes: the label by which sidecars opt in, and what is learned for whom.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::names::{Hostname, Namespace, ServiceAccount};

/// The label of pods and namespaces that selects the form of a sidecar's scope. A pod's own label
/// takes precedence.
pub const LABEL: &str = "navarch.io/scope";
/// The value of [`LABEL`] for a learned scope.
const LEARNED: &str = "learned";
/// The value of [`LABEL`] for a scope that is sent as a whole, as without the label.
const WHOLE: &str = "whole";

/// Maximum number of hosts that a workload's proxies start with. With more, its proxies get all
/// clusters: a workload that calls that many services gains little.
pub const MAX_HOSTS: usize = 2_000;

/// How a sidecar gets the clusters of its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScopeForm {
    /// All of them at its start.
    Whole,
    /// Those that its workload has used at its start, the others with the first request.
    Learned,
}

/// A workload whose sidecars share what they have learned.
///
/// Namespace and account are those of the identities that its proxies have proved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LearnedWorkload {
    /// Where its pods are.
    pub namespace: Namespace,
    /// The service account of its pods.
    pub account: ServiceAccount,
    /// The name of its Deployment or other owner.
    pub name: Arc<str>,
}

/// The hosts of services that a workload has used.
pub type LearnedHosts = BTreeSet<Hostname>;

impl ScopeForm {
    /// Parses a value of [`LABEL`].
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            LEARNED => Some(Self::Learned),
            WHOLE => Some(Self::Whole),
            _ => None,
        }
    }
}

impl fmt::Display for LearnedWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{} (service account {})",
            self.namespace, self.name, self.account
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_values_of_the_label_are_none() {
        assert_eq!(ScopeForm::parse("learned"), Some(ScopeForm::Learned));
        assert_eq!(ScopeForm::parse("whole"), Some(ScopeForm::Whole));
        for other in ["", "Learned", "lerned", "true"] {
            assert_eq!(ScopeForm::parse(other), None, "{other:?}");
        }
    }
}
