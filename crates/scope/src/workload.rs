//! The workloads whose proxies are looked at.

use std::collections::BTreeSet;
use std::fmt;

use navarch_answers::client::Client;
use navarch_api::names::{is_kubernetes_label, is_kubernetes_name};
use serde::{Deserialize, Serialize};

/// Namespace and name of what owns pods, such as a Deployment: `source_workload_namespace` and
/// `source_workload` of Istio's metrics. In JSON it is `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkloadName {
    /// The namespace of the pods.
    pub namespace: String,
    /// The name of the owner.
    pub name: String,
}

/// A workload whose pods have sidecars.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The owner of the pods.
    pub name: WorkloadName,
    /// The names of its pods with a sidecar.
    pub pods: BTreeSet<String>,
    /// The names of all of its pods: also those that start, have ended, or have no sidecar.
    pub all_pods: BTreeSet<String>,
    /// The proxy of one of them, which stands for all.
    pub client: Client,
}

/// A text that is not `namespace/name`, or whose parts Kubernetes would not accept as names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a workload must be NAMESPACE/NAME")]
pub struct WorkloadNameError;

impl WorkloadName {
    /// The name of its parts.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether Kubernetes would accept its parts as names. Labels of metrics and variables of pods
    /// may have any text.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        is_kubernetes_label(&self.namespace) && is_kubernetes_name(&self.name)
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<WorkloadName> for String {
    fn from(name: WorkloadName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for WorkloadName {
    type Error = WorkloadNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl std::str::FromStr for WorkloadName {
    type Err = WorkloadNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').ok_or(WorkloadNameError)?;
        let parsed = Self::new(namespace, name);
        parsed.is_valid().then_some(parsed).ok_or(WorkloadNameError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_two_parts_that_kubernetes_accepts() {
        let name: WorkloadName = "shop/web.v1".parse().unwrap();
        assert_eq!(name, WorkloadName::new("shop", "web.v1"));
        for wrong in ["", "web", "/web", "shop/", "a/b/c", "shop/w\nb", "shop/Web"] {
            assert!(wrong.parse::<WorkloadName>().is_err(), "{wrong}");
        }
    }
}
