//! The workload of a pod, as derived from the pod.

use serde_json::Value;

use super::pod;

/// A pod's workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The workload's name; empty if unknown.
    pub name: String,
    /// The workload's namespace.
    pub namespace: String,
    /// The workload's API version.
    pub api_version: String,
    /// The workload's kind.
    pub kind: String,
}

/// The minimum number of digits in the timestamp of a CronJob's Job name.
const MIN_TIME_DIGITS: usize = 8;

/// The maximum number of digits in the timestamp.
const MAX_TIME_DIGITS: usize = 10;

impl Workload {
    /// The workload of a pod in a namespace (`GetDeployMetaFromPod` of istiod's `pkg/kube`): the
    /// controller of a pod with a generated name, or the controller's owner (such as the Deployment
    /// of a ReplicaSet), else the pod itself.
    pub(super) fn of(pod: &Value, namespace: &str) -> Self {
        let mut workload = Self {
            name: pod::meta(pod, "name").to_owned(),
            namespace: namespace.to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
        };

        if pod::meta(pod, "generateName").is_empty() {
            return workload;
        }

        if let Some(controller) = controller(pod) {
            let text = |field: &str| {
                controller
                    .get(field)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            workload.name = text("name").to_owned();
            workload.api_version = text("apiVersion").to_owned();
            workload.kind = text("kind").to_owned();
            workload.resolve_owner(pod);
        }

        if workload.name.is_empty() {
            workload.name = pod::meta(pod, "name").to_owned();
        }

        workload
    }

    /// Replaces the controller with its owner, which is derived from names and labels.
    fn resolve_owner(&mut self, pod: &Value) {
        let label = |name: &str| pod::label(pod, name).filter(|value| !value.is_empty());

        match self.kind.as_str() {
            "ReplicaSet" => {
                if let Some(hash) =
                    label("pod-template-hash").filter(|hash| self.name.ends_with(hash))
                {
                    self.name = without_hash(&self.name, hash);
                    self.kind = "Deployment".to_owned();
                } else if let Some(hash) =
                    label("rollouts-pod-template-hash").filter(|hash| self.name.ends_with(hash))
                {
                    self.name = without_hash(&self.name, hash);
                    self.kind = "Rollout".to_owned();
                    self.api_version = "v1alpha1".to_owned();
                }
            }
            "ReplicationController" => {
                if let Some(config) = label("deploymentconfig") {
                    self.name = config.to_owned();
                    self.kind = "DeploymentConfig".to_owned();
                }
            }
            "Job" => {
                if let Some(name) = cron_job(&self.name) {
                    self.name = name;
                    self.kind = "CronJob".to_owned();
                    self.api_version = "batch/v1".to_owned();
                }
            }
            _ => {}
        }
    }
}

/// The controller among the pod's owners.
fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod.get("metadata")?.get("ownerReferences")?.as_array()?;
    owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

/// Removes the hash suffix of a name.
fn without_hash(name: &str, hash: &str) -> String {
    let short = name
        .strip_suffix(hash)
        .and_then(|rest| rest.strip_suffix('-'));
    short.unwrap_or(name).to_owned()
}

/// The CronJob of a Job: the Job's name is the CronJob's name with the time in minutes or seconds.
fn cron_job(name: &str) -> Option<String> {
    let (cron, time) = name.rsplit_once('-')?;
    let digits = (MIN_TIME_DIGITS..=MAX_TIME_DIGITS).contains(&time.len());
    (digits && !cron.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| cron.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Kind, name and API version of the workload of a pod with a controller.
    fn owner_of(kind: &str, name: &str, labels: Value) -> (String, String, String) {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true});
        let pod = json!({"metadata": {"generateName": "x-", "labels": labels, "ownerReferences": [owner]}});
        let workload = Workload::of(&pod, "shop");
        (workload.kind, workload.name, workload.api_version)
    }

    #[test]
    fn workload_names_are_derived_from_labels_and_owner_names() {
        let is = |kind: &str, name: &str, version: &str| {
            (kind.to_owned(), name.to_owned(), version.to_owned())
        };
        let hash = json!({"pod-template-hash": "abc"});
        assert_eq!(
            owner_of("ReplicaSet", "web-abc", hash.clone()),
            is("Deployment", "web", "apps/v1")
        );

        assert_eq!(
            owner_of("ReplicaSet", "web-xyz", hash),
            is("ReplicaSet", "web-xyz", "apps/v1")
        );
        let rollout = json!({"rollouts-pod-template-hash": "abc"});
        assert_eq!(
            owner_of("ReplicaSet", "web-abc", rollout),
            is("Rollout", "web", "v1alpha1")
        );

        let config = json!({"deploymentconfig": "dc"});
        assert_eq!(
            owner_of("ReplicationController", "dc-1", config),
            is("DeploymentConfig", "dc", "apps/v1")
        );
        assert_eq!(
            owner_of("Job", "backup-28345678", json!({})),
            is("CronJob", "backup", "batch/v1")
        );

        assert_eq!(
            owner_of("Job", "backup-2834567", json!({})),
            is("Job", "backup-2834567", "apps/v1")
        );
        let bare = json!({"metadata": {"name": "web"}});
        assert_eq!(Workload::of(&bare, "shop").kind, "Pod");
    }
}
