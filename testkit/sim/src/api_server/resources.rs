//! The resources that the simulated API server has.

use std::collections::BTreeMap;

use navarch_source::KubernetesScope;

/// A resource of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    /// Its API group; empty for the core group.
    pub(crate) group: String,
    /// Its name in paths, such as `virtualservices`.
    pub(crate) plural: String,
    /// The `kind` of its objects.
    pub(crate) kind: String,
}

/// Resources beside those that Navarch reads: group, plural, kind.
const WRITTEN: [(&str, &str, &str); 12] = [
    ("", "events", "Event"),
    ("", "serviceaccounts", "ServiceAccount"),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    ),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
    ),
    ("apps", "deployments", "Deployment"),
    ("apps", "daemonsets", "DaemonSet"),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
    ),
    ("coordination.k8s.io", "leases", "Lease"),
    ("events.k8s.io", "events", "Event"),
    ("policy", "poddisruptionbudgets", "PodDisruptionBudget"),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        "CertificateSigningRequest",
    ),
];

/// All resources, by group and plural.
#[derive(Debug)]
pub(crate) struct Resources(BTreeMap<(String, String), Resource>);

impl Default for Resources {
    fn default() -> Self {
        let read = KubernetesScope::default().read_kinds();
        let read = read
            .iter()
            // Not every cluster has the inference extension: it is a kind that is not served.
            .filter(|read| !read.group.starts_with("inference"))
            .map(|read| (read.group, read.resource.as_str(), read.kind.as_str()));

        let resource = |(group, plural, kind): (&str, &str, &str)| {
            let resource = Resource {
                group: group.to_owned(),
                plural: plural.to_owned(),
                kind: kind.to_owned(),
            };
            ((group.to_owned(), plural.to_owned()), resource)
        };
        Self(read.chain(WRITTEN).map(resource).collect())
    }
}

impl Resources {
    /// The resource of a path.
    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<&Resource> {
        self.0.get(&(group.to_owned(), plural.to_owned()))
    }

    /// The resource of a kind.
    pub(crate) fn of_kind(&self, group: &str, kind: &str) -> Option<&Resource> {
        self.0
            .values()
            .find(|resource| resource.group == group && resource.kind == kind)
    }
}
