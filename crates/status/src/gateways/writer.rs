//! Applies the objects of Gateways.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use navarch_api::object::NamespacedName;
use navarch_kubernetes::{is_stale, status_patch};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::MANAGED;
use super::cluster_state::{ClusterState, MadeObject};
use super::metadata::{CONTROLLER_VERSION, VERSION};
use super::rejected_overlays;
use super::watches::{DeployedKind, gateway_api};
use crate::cluster::Cluster;
use crate::denials::Denials;

/// Minimum interval of writes: a hundred per second.
const PER_WRITE: Duration = Duration::from_millis(10);
/// Maximum number of remembered deleted objects, in addition to the number of existing ones.
const PRUNE_SLACK: usize = 64;
/// Maximum number of attempts to write a condition beside the other writers of a status.
const MAX_ATTEMPTS: usize = 5;
/// The selector label of Deployments from Istio before 1.24. The selector of a Deployment is
/// immutable.
const FORMER_LABEL: &str = "istio.io/gateway-name";

/// A digest of the fields that a manager applied: a different digest means that another writer has
/// changed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields([u8; 32]);

impl Fields {
    /// The digest for an object.
    pub(super) fn of(object: &DynamicObject, manager: &str) -> Self {
        let mut digest = Sha256::new();
        for entry in object.metadata.managed_fields.iter().flatten() {
            let is_applied =
                entry.operation.as_deref() == Some("Apply") && entry.subresource.is_none();
            if is_applied && entry.manager.as_deref() == Some(manager) {
                digest.update(serde_json::to_vec(&entry.fields_v1).unwrap_or_default());
            }
        }
        Self(digest.finalize().into())
    }
}

/// The state of an object after the last write.
#[derive(Clone, Copy, Debug)]
struct LastWrite {
    /// The digest of the object as it was applied.
    object: [u8; 32],
    /// The digest of its applied fields after that.
    fields: Fields,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ApplyOutcome {
    /// The object was applied.
    #[default]
    Applied,
    /// A foreign object has its name.
    Foreign,
}

/// Applies objects that differ from the wanted state.
#[derive(Debug)]
pub(super) struct Writer {
    cluster: Cluster,
    /// The field manager: the controller's name, as in istiod.
    manager: String,
    /// The objects as they were last written.
    written: BTreeMap<(DeployedKind, NamespacedName), LastWrite>,
    /// When the next object may be written.
    free: Instant,
    /// Whether the API server stores annotations in a write of the status.
    marks: bool,
    /// Missing rights to write statuses.
    denials: Denials,
}

impl Writer {
    /// A writer with this field manager.
    pub(super) fn new(cluster: Cluster, manager: String) -> Self {
        Self {
            cluster,
            manager,
            written: BTreeMap::new(),
            free: Instant::now(),
            marks: true,
            denials: Denials::default(),
        }
    }

    /// When the next object may be written.
    pub(super) fn free(&self) -> Instant {
        self.free
    }

    /// Marks a Gateway as this controller's by a write of its status, as istiod does, because it
    /// may write only the status. Current API servers ignore the annotation in it; once one did, no
    /// more Gateways are marked.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub(super) async fn take(&mut self, gateway: &NamespacedName) -> Result<(), kube::Error> {
        if !self.marks {
            return Ok(());
        }

        let kind = gateway_api("Gateway", "gateways");
        let patch = json!({
            "apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": { "annotations": { CONTROLLER_VERSION: VERSION.to_string() } },
        });
        let api = Api::<DynamicObject>::namespaced_with(
            self.cluster.0.clone(),
            gateway.namespace.as_str(),
            &kind,
        );

        self.delay_next_write();
        let marked = api
            .patch_status(&gateway.name, &self.parameters(), &Patch::Apply(patch))
            .await?;
        self.marks = marked.annotations().contains_key(CONTROLLER_VERSION);

        Ok(())
    }

    /// Tells in the status of a Gateway that an overlay is rejected, or no longer is.
    ///
    /// # Errors
    /// If the API server rejects it, except for a missing right.
    pub(super) async fn tell(
        &mut self,
        gateway: &NamespacedName,
        rejection: Option<&str>,
    ) -> Result<(), kube::Error> {
        let kind = gateway_api("Gateway", "gateways");
        let api = Api::<DynamicObject>::namespaced_with(
            self.cluster.0.clone(),
            gateway.namespace.as_str(),
            &kind,
        );

        for attempt in 1..=MAX_ATTEMPTS {
            let Some(there) = api.get_opt(&gateway.name).await? else {
                return Ok(());
            };
            let status = there.data.get("status");
            let now = jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string();
            let Some(conditions) =
                rejected_overlays::correction(status, there.metadata.generation, rejection, &now)
            else {
                return Ok(());
            };

            let patch = status_patch(
                there.metadata.resource_version.clone(),
                status.is_some(),
                [("conditions", conditions)],
            )?;
            self.delay_next_write();
            match api
                .patch_status(&gateway.name, &PatchParams::default(), &patch)
                .await
            {
                Ok(_) => return Ok(()),
                Err(error) if is_stale(&error) && attempt < MAX_ATTEMPTS => {}
                Err(error) if self.denials.covers("gateways/status", &error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }

        Ok(())
    }

    /// Applies an object, unless it is up to date or foreign.
    ///
    /// # Errors
    /// If the API server rejects it, also because the object has changed since it was read.
    pub(super) async fn apply(
        &mut self,
        made: DeployedKind,
        mut object: Value,
        cluster_state: &mut ClusterState,
    ) -> Result<ApplyOutcome, kube::Error> {
        let text = |field: &str| {
            object
                .pointer(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };

        let name = NamespacedName::new(text("/metadata/namespace"), text("/metadata/name"));
        let digest: [u8; 32] = Sha256::digest(object.to_string()).into();
        let key = (made, name.clone());

        if let (Some(written), Some(there)) =
            (self.written.get(&key), cluster_state.made(made, &name))
            && written.object == digest
            && written.fields == there.fields
        {
            return Ok(ApplyOutcome::Applied);
        }
        let client = self.cluster.0.clone();
        let kind = made.resource();
        let api = Api::<DynamicObject>::namespaced_with(client, name.namespace.as_str(), &kind);

        if let Some(there) = api.get_opt(&name.name).await? {
            if !there.labels().contains_key(MANAGED) {
                return Ok(ApplyOutcome::Foreign);
            }
            // The write must fail if the object is no longer the one that was read.
            if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.insert(
                    "resourceVersion".to_owned(),
                    json!(there.resource_version()),
                );
            }
            if made == DeployedKind::Deployment {
                keep_selector(&mut object, &there.data);
            }
        }

        self.delay_next_write();
        let applied = api
            .patch(&name.name, &self.parameters(), &Patch::Apply(object))
            .await?;
        let applied = MadeObject::of(&applied, &self.manager);
        self.written.insert(
            key,
            LastWrite {
                object: digest,
                fields: applied.fields,
            },
        );

        cluster_state.note_made(made, name, applied);

        if self.written.len() > 2 * cluster_state.made_count() + PRUNE_SLACK {
            self.written
                .retain(|(made, name), _| cluster_state.made(*made, name).is_some());
        }

        Ok(ApplyOutcome::Applied)
    }

    fn delay_next_write(&mut self) {
        self.free = self.free.max(Instant::now()) + PER_WRITE;
    }

    /// Applies with force: fields of other managers are overwritten.
    fn parameters(&self) -> PatchParams {
        PatchParams::apply(&self.manager).force()
    }
}

/// Keeps the selector of a Deployment from an earlier Istio, and the selected label of its pods.
fn keep_selector(object: &mut Value, there: &Value) {
    let selector = there.pointer("/spec/selector");
    let label = selector.and_then(|selector| selector.get("matchLabels")?.get(FORMER_LABEL));
    let (Some(selector), Some(label)) = (selector, label) else {
        return;
    };
    if let Some(own) = object.pointer_mut("/spec/selector") {
        *own = selector.clone();
    }
    if let Some(labels) = object
        .pointer_mut("/spec/template/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.insert(FORMER_LABEL.to_owned(), label.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selector_of_an_earlier_deployment_stays() {
        let deployment = |selector: Value, labels: Value| json!({ "spec": { "selector": { "matchLabels": selector }, "template": { "metadata": { "labels": labels } } } });
        let mut own = deployment(json!({ "new": "web" }), json!({ "new": "web" }));
        keep_selector(&mut own, &deployment(json!({ "new": "web" }), json!({})));
        assert_eq!(
            own,
            deployment(json!({ "new": "web" }), json!({ "new": "web" }))
        );
        keep_selector(
            &mut own,
            &deployment(json!({ FORMER_LABEL: "web" }), json!({})),
        );

        assert_eq!(
            own,
            deployment(
                json!({ FORMER_LABEL: "web" }),
                json!({ "new": "web", FORMER_LABEL: "web" })
            )
        );
    }
}
