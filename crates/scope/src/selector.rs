//! The labels by which a Sidecar or a policy selects exactly one workload.

use std::collections::BTreeMap;

use navarch_api::names::Namespace;
use navarch_api::object::ObjectMeta;
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
/// Labels that controllers or Helm set anew for each revision, release, run or pod, and those that
/// injection or the node sets.
const VOLATILE: [&str; 20] = [
    "pod-template-hash",
    "pod-template-generation",
    "rollouts-pod-template-hash",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "istio.io/rev",
    "security.istio.io/tlsMode",
    "networking.istio.io/tunnel",
    "service.istio.io/canonical-revision",
    "service.istio.io/canonical-name",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Labels of a pod or of a selector.
pub(crate) type Labels = BTreeMap<String, String>;

/// The labels that all pods of a workload have, and together no other pod or WorkloadEntry of its
/// namespace; `None` if there are none.
pub(crate) fn selector(context: &PushContext, workload: &Workload) -> Option<Labels> {
    let namespace = Namespace::new(&workload.name.namespace);
    let mut own: Vec<Labels> = Vec::new();
    let mut others: Vec<Labels> = labels_of_entries(context, &namespace);
    for pod in context.objects.pods.in_namespace(&namespace) {
        if workload.pods.contains(&*pod.meta.key.name) {
            own.push(labels(&pod.meta));
        } else if !workload.all_pods.contains(&*pod.meta.key.name) {
            others.push(labels(&pod.meta));
        }
    }

    let (first, rest) = own.split_first()?;
    let mut common = first.clone();
    common.retain(|key, value| {
        !VOLATILE.contains(&key.as_str()) && rest.iter().all(|pod| pod.get(key) == Some(value))
    });

    let is_unique = |selector: &Labels| {
        !selector.is_empty() && !others.iter().any(|labels| selects(selector, labels))
    };
    let by_convention = CONVENTIONS.iter().filter_map(|keys| {
        let entry = |key: &&str| Some(((*key).to_owned(), common.get(*key)?.clone()));
        keys.iter().map(entry).collect::<Option<Labels>>()
    });
    by_convention
        .chain([common.clone()])
        .find(|labels| is_unique(labels))
}

/// The labels of the WorkloadEntries in a namespace, which selectors select, too.
fn labels_of_entries(context: &PushContext, namespace: &Namespace) -> Vec<Labels> {
    let entries = context.objects.workload_entries.in_namespace(namespace);
    let of_entries = entries.map(|entry| {
        let mut labels = labels(&entry.meta);
        labels.extend(entry.spec.labels.clone());
        labels
    });
    of_entries.collect()
}

/// The labels of an object.
fn labels(meta: &ObjectMeta) -> Labels {
    let labels = meta.labels.iter();
    labels
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
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
    own.map(|pod| labels(&pod.meta)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_mesh::{MESH, TestMesh};

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
    fn pods_that_start_or_have_ended_are_no_other_workload() {
        let first = ("web", "web-1", "app: web");
        let ended = ("web", "web-0", "app: web, phase: old");
        let mesh = TestMesh::of_pods(&[first, ended]);
        let mut workload = mesh.workload("shop/web").clone();
        workload.pods.remove("web-0");
        let labels = selector(&mesh.context, &workload).unwrap();
        assert_eq!(labels["app"], "web");

        workload.all_pods.remove("web-0");
        assert_eq!(selector(&mesh.context, &workload), None);
    }

    #[test]
    fn workload_entries_are_not_selected() {
        let entry = "
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: vm, namespace: shop }
spec: { address: 10.9.0.1, labels: { app: web } }
";
        let mesh = TestMesh::new("", &format!("{MESH}{entry}"));
        let labels = selector(&mesh.context, mesh.workload("shop/web")).unwrap();
        assert_eq!(labels["version"], "v1", "the entry has no version");
    }

    #[test]
    fn labels_of_one_revision_select_nothing() {
        let of_run = "pod-template-hash: '1', job-name: web-28000000, helm.sh/chart: web-1.2";
        assert_eq!(found(&[("web", "web-1", of_run)]), None);
        let by_team = ("web", "web-1", "team: blue");
        assert_eq!(found(&[by_team]).unwrap(), ["team=blue"]);
    }
}
