//! The labels by which a Sidecar or a policy selects exactly one workload.

use std::collections::BTreeMap;

use navarch_api::names::Namespace;
use navarch_push::context::PushContext;

use super::workload::Workload;

/// Labels that selectors use by convention, in the order in which they are tried: a selector with
/// few labels still selects the workload after its next release.
const CONVENTIONS: [&[&str]; 6] = [
    &["app.kubernetes.io/name", "app.kubernetes.io/instance"],
    &["app.kubernetes.io/name"],
    &["app"],
    &["app", "version"],
    &["k8s-app"],
    &["name"],
];
/// Labels that controllers set anew for each revision or pod, or that injection sets.
const VOLATILE: [&str; 10] = [
    "pod-template-hash",
    "pod-template-generation",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "security.istio.io/tlsMode",
    "networking.istio.io/tunnel",
    "service.istio.io/canonical-revision",
    "service.istio.io/canonical-name",
    "batch.kubernetes.io/controller-uid",
];

/// Labels of a pod or of a selector.
pub(crate) type Labels = BTreeMap<String, String>;

/// The labels that all pods of a workload have, and together no other pod of its namespace; `None`
/// if there are none.
pub(crate) fn selector(context: &PushContext, workload: &Workload) -> Option<Labels> {
    let namespace = Namespace::new(&workload.name.namespace);
    let mut own: Vec<Labels> = Vec::new();
    let mut others: Vec<Labels> = Vec::new();
    for pod in context.objects.pods.in_namespace(&namespace) {
        let labels = pod.meta.labels.iter();
        let labels = labels.map(|(key, value)| (key.to_string(), value.to_string()));
        if workload.pods.contains(&*pod.meta.key.name) {
            own.push(labels.collect());
        } else {
            others.push(labels.collect());
        }
    }

    let (first, rest) = own.split_first()?;
    let mut common = first.clone();
    common.retain(|key, value| {
        !VOLATILE.contains(&key.as_str()) && rest.iter().all(|pod| pod.get(key) == Some(value))
    });

    let is_unique = |labels: &Labels| {
        let selects = |pod: &Labels| {
            labels
                .iter()
                .all(|(key, value)| pod.get(key) == Some(value))
        };
        !labels.is_empty() && !others.iter().any(selects)
    };
    let by_convention = CONVENTIONS.iter().filter_map(|keys| {
        let entry = |key: &&str| Some(((*key).to_owned(), common.get(*key)?.clone()));
        keys.iter().map(entry).collect::<Option<Labels>>()
    });
    by_convention
        .chain([common.clone()])
        .find(|labels| is_unique(labels))
}

/// Whether a selector selects the pods with these labels.
pub(crate) fn selects(selector: &BTreeMap<String, String>, labels: &Labels) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// The labels of one pod of a workload; empty if it is not in the snapshot.
pub(crate) fn labels_of(context: &PushContext, workload: &Workload) -> Labels {
    let namespace = Namespace::new(&workload.name.namespace);
    let mut pods = context.objects.pods.in_namespace(&namespace);
    let own = pods.find(|pod| workload.pods.contains(&*pod.meta.key.name));
    let labels = own.into_iter().flat_map(|pod| pod.meta.labels.iter());
    labels
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_mesh::TestMesh;

    fn found(pods: &[(&str, &str, &str)]) -> Option<Vec<String>> {
        let mesh = TestMesh::of_pods(pods);
        let labels = selector(&mesh.context, mesh.workload("shop/web"))?;
        Some(
            labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
        )
    }

    #[test]
    fn a_selector_has_the_fewest_labels_that_are_the_workloads_own() {
        let web = (
            "web",
            "web-1",
            "app: web, version: v1, pod-template-hash: '1'",
        );
        assert_eq!(found(&[web]).unwrap(), ["app=web"]);

        let other = ("web-v2", "web-v2-1", "app: web, version: v2");
        assert_eq!(found(&[web, other]).unwrap(), ["app=web", "version=v1"]);

        let second = (
            "web",
            "web-2",
            "app: web, version: v2, pod-template-hash: '2'",
        );
        assert_eq!(found(&[web, second]).unwrap(), ["app=web"]);
        assert_eq!(found(&[web, second, other]), None, "no label is its own");
    }

    #[test]
    fn labels_of_one_revision_select_nothing() {
        assert_eq!(found(&[("web", "web-1", "pod-template-hash: '1'")]), None);
        let by_team = ("web", "web-1", "team: blue");
        assert_eq!(found(&[by_team]).unwrap(), ["team=blue"]);
    }
}
