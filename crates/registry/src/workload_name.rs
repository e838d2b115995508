//! The names of workloads: of a pod, by its owner, and of a WorkloadEntry (Istio's
//! `GetWorkloadMetaFromPod`).

use std::sync::Arc;

use navarch_api::kubernetes::Pod;
use navarch_api::object::{Object, ObjectMeta};

/// The label of a pod or WorkloadEntry that sets its workload name.
const WORKLOAD_NAME_LABEL: &str = "service.istio.io/workload-name";
/// The annotation of WorkloadEntries that were created for a WorkloadGroup.
const GROUP_ANNOTATION: &str = "istio.io/autoRegistrationGroup";

/// The workload of a pod: its Deployment or other owner if that follows from the pod alone, else
/// the pod.
#[must_use]
pub fn workload_name_of_pod(pod: &Object<Pod>) -> Arc<str> {
    if let Some(name) = pod.meta.labels.get(WORKLOAD_NAME_LABEL) {
        return name.clone();
    }
    match &pod.meta.controller {
        Some(owner) if pod.spec.name_is_generated && !owner.name.is_empty() => {
            owner_of_controller(&owner.kind, &owner.name, &pod.meta)
                .map_or_else(|| owner.name.clone(), Arc::from)
        }
        Some(_) | None => pod.meta.key.name.clone(),
    }
}

/// The owner of a pod's controller, guessed from the controller's name and the pod's labels.
fn owner_of_controller<'a>(kind: &str, name: &'a str, pod: &'a ObjectMeta) -> Option<&'a str> {
    let label = |key: &str| {
        pod.labels
            .get(key)
            .map(|value| &**value)
            .filter(|value| !value.is_empty())
    };

    match kind {
        // The name of a Deployment's or Rollout's ReplicaSet ends in the hash in the labels of its
        // pods.
        "ReplicaSet" => ["pod-template-hash", "rollouts-pod-template-hash"]
            .iter()
            .find_map(|key| {
                let hash = label(key)?;
                name.ends_with(hash).then(|| {
                    name.strip_suffix(hash)
                        .and_then(|name| name.strip_suffix('-'))
                        .unwrap_or(name)
                })
            }),
        "ReplicationController" => label("deploymentconfig"),
        "Job" => owner_of_job(name),
        _ => None,
    }
}

/// The CronJob of a Job, whose name ends in a time of eight to ten digits.
fn owner_of_job(name: &str) -> Option<&str> {
    let (owner, time) = name.rsplit_once('-')?;
    let is_time = (8..=10).contains(&time.len()) && time.bytes().all(|byte| byte.is_ascii_digit());
    (is_time && !owner.is_empty()).then_some(owner)
}

/// The workload of a WorkloadEntry: its group, the name in its label, or its own name.
#[must_use]
pub fn workload_name_of_entry(meta: &ObjectMeta) -> Arc<str> {
    let value = meta
        .annotations
        .get(GROUP_ANNOTATION)
        .or_else(|| meta.labels.get(WORKLOAD_NAME_LABEL));
    value.unwrap_or(&meta.key.name).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, name: &str, labels: &[(&str, &str)]) -> Option<String> {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        let meta = ObjectMeta {
            labels,
            ..ObjectMeta::default()
        };
        owner_of_controller(kind, name, &meta).map(str::to_owned)
    }

    #[test]
    fn a_replica_set_with_the_pods_hash_belongs_to_a_deployment() {
        let labels = [("pod-template-hash", "5f6")];
        assert_eq!(
            owner("ReplicaSet", "web-5f6", &labels).as_deref(),
            Some("web")
        );
        assert_eq!(owner("ReplicaSet", "web", &labels), None);
        assert_eq!(
            owner(
                "ReplicaSet",
                "web-7",
                &[("rollouts-pod-template-hash", "7")]
            )
            .as_deref(),
            Some("web")
        );
    }

    #[test]
    fn a_job_named_with_a_timestamp_has_a_cron_job_as_owner() {
        assert_eq!(
            owner("Job", "backup-27654321", &[]).as_deref(),
            Some("backup")
        );
        assert_eq!(owner("Job", "backup-1234567", &[]), None);
        assert_eq!(owner("Job", "backup-1234567x", &[]), None);
    }

    #[test]
    fn a_replication_controller_belongs_to_its_deployment_config() {
        assert_eq!(
            owner(
                "ReplicationController",
                "web-1",
                &[("deploymentconfig", "web")]
            )
            .as_deref(),
            Some("web")
        );
        assert_eq!(owner("StatefulSet", "db", &[]), None);
    }
}
