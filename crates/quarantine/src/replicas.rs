//! The replicas of the control plane.

use std::collections::BTreeSet;

use navarch_api::kubernetes::{Pod, PodPhase};
use navarch_api::names::Namespace;
use navarch_api::object::Object;
use navarch_push::context::PushContext;

/// The label of pods of the control plane, which istiod's have as well.
const APP_LABEL: (&str, &str) = ("app", "istiod");

/// Where replicas are found.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The name of this one: that of its pod.
    pub own: String,
    /// The namespace of the control plane.
    pub namespace: Namespace,
    /// Whether there is only this one.
    pub is_single: bool,
}

impl Replicas {
    /// The names of all that run; `None` if they are not known.
    pub(super) fn all(&self, context: &PushContext) -> Option<BTreeSet<String>> {
        self.of_pods(context, |_| true)
    }

    /// Those that answer their probes and do not stop; `None` if they are not known. What another
    /// one has reported of its clients may be of any time: a process that hangs reports nothing new,
    /// while its pod runs on.
    pub(super) fn answering(&self, context: &PushContext) -> Option<BTreeSet<String>> {
        self.of_pods(context, |pod| pod.spec.ready && !pod.meta.deleting)
    }

    /// This one, and those whose pods run and are selected.
    fn of_pods(
        &self,
        context: &PushContext,
        is_selected: impl Fn(&Object<Pod>) -> bool,
    ) -> Option<BTreeSet<String>> {
        if self.is_single {
            return Some([self.own.clone()].into());
        }

        let (key, value) = APP_LABEL;
        let is_replica = |pod: &Object<Pod>| {
            let label = pod.meta.labels.get(key);
            pod.spec.phase == PodPhase::Running && label.is_some_and(|label| **label == *value)
        };
        let is_own = |pod: &Object<Pod>| *pod.meta.key.name == *self.own;
        let names: BTreeSet<String> = context
            .objects
            .pods
            .iter()
            .filter(|pod| pod.meta.key.namespace == self.namespace && is_replica(pod))
            .filter(|pod| is_own(pod) || is_selected(pod))
            .map(|pod| pod.meta.key.name.to_string())
            .collect();
        names.contains(&self.own).then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use navarch_push::testing::mesh_of;

    use super::*;

    /// A mesh with pods of the control plane: each with its phase and the status of its condition.
    fn mesh(pods: &[(&str, &str, &str)]) -> Arc<PushContext> {
        let pod = |(name, phase, ready): &(&str, &str, &str)| {
            let deleted = match *name {
                "istiod-stopping" => "deletionTimestamp: \"2026-01-01T00:00:00Z\"",
                _ => "generation: 1",
            };
            format!(
                "apiVersion: v1\nkind: Pod\n\
                 metadata: {{name: {name}, namespace: istio-system, labels: {{app: istiod}}, {deleted}}}\n\
                 spec: {{containers: [{{name: discovery}}]}}\n\
                 status: {{phase: {phase}, conditions: [{{type: Ready, status: \"{ready}\"}}]}}\n"
            )
        };
        let pods: Vec<String> = pods.iter().map(pod).collect();
        mesh_of(&pods.join("---\n")).context()
    }

    fn replicas(own: &str) -> Replicas {
        Replicas {
            own: own.to_owned(),
            namespace: Namespace::new("istio-system"),
            is_single: false,
        }
    }

    #[test]
    fn a_replica_that_hangs_or_stops_is_not_asked_who_is_connected_to_it() {
        let context = mesh(&[
            ("istiod-own", "Running", "False"),
            ("istiod-ready", "Running", "True"),
            ("istiod-hangs", "Running", "False"),
            ("istiod-lost", "Running", "Unknown"),
            ("istiod-stopping", "Running", "True"),
            ("istiod-ended", "Succeeded", "False"),
        ]);
        let own = replicas("istiod-own");

        let all = own.all(&context).unwrap();
        assert_eq!(all.len(), 5, "votes of all that run are awaited: {all:?}");
        let answering = own.answering(&context).unwrap();
        assert_eq!(
            answering,
            ["istiod-own", "istiod-ready"].map(str::to_owned).into()
        );

        let unknown = replicas("istiod-new");
        assert_eq!(unknown.all(&context), None);
        assert_eq!(unknown.answering(&context), None);
    }
}
