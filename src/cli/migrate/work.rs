//! What is written to the cluster: the edits of a step, and the record of them.

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::GroupVersionKind;
use navarch_kubernetes::{InWords, is_conflict};
use navarch_migration::{
    Change, DoneStep, Edit, EditedKind, ObjectName, Plan, PlannedStep, State, returning,
};
use serde_json::{Value, json};

use super::super::mesh::Mesh;
use super::record::{RECORD, Record};

/// The key of the record in its ConfigMap.
const KEY: &str = "state.json";
/// The size of a ConfigMap that an API server accepts, with room for its metadata.
const MAX_RECORD_BYTES: usize = 1_000_000;
/// The name under which the API server notes who has set a field.
const FIELD_MANAGER: &str = "navarch-migrate";

impl Mesh {
    /// Reads the record of a namespace.
    ///
    /// # Errors
    /// If it cannot be read, or names edits that no step makes.
    pub(super) async fn record(&self, namespace: &str) -> anyhow::Result<Record> {
        let maps = self.maps(namespace)?;
        let map = maps.get_opt(RECORD).await;
        let map = map.map_err(|error| failed(&format!("read {namespace}/{RECORD}"), &error))?;
        let Some(map) = map else {
            return Ok(Record {
                namespace: namespace.to_owned(),
                state: None,
                version: None,
            });
        };

        let text = map.data.as_ref().and_then(|data| data.get(KEY));
        let text = text.with_context(|| format!("ConfigMap {namespace}/{RECORD} has no {KEY}"))?;
        let state = State::parse(text, namespace)
            .with_context(|| format!("ConfigMap {namespace}/{RECORD}"))?;
        Ok(Record {
            namespace: namespace.to_owned(),
            state: Some(state),
            version: map.metadata.resource_version,
        })
    }

    /// Records that a step begins, with what undoes it.
    ///
    /// # Errors
    /// If the step could not be undone, or the record cannot be written.
    pub(super) async fn begin(
        &self,
        record: &mut Record,
        plan: &Plan,
        planned: &PlannedStep,
    ) -> anyhow::Result<()> {
        let begun = planned
            .begun(&jiff::Timestamp::now().to_string())
            .with_context(|| format!("{} could not be undone", planned.step.title))?;

        let state = record.state.get_or_insert_with(|| State::of(plan));
        state.replan(plan);
        state.begun = Some(begun);
        self.store(record).await
    }

    /// Does the edits of the step that was begun, as far as they are not done, and records it as
    /// done.
    ///
    /// # Errors
    /// If an edit fails: then the step stays begun.
    pub(super) async fn finish(&self, record: &mut Record) -> anyhow::Result<()> {
        let namespace = record.namespace.clone();
        let advice = || {
            format!(
                "the step is not finished: navarch migrate apply {namespace} --next goes on with \
                 it, navarch migrate undo {namespace} --yes undoes it"
            )
        };
        let begun = record.begun().context("no step was begun")?;
        for edit in begun.unfinished(&self.objects) {
            self.perform(edit).await.with_context(advice)?;
        }

        if let Some(state) = &mut record.state {
            state.done.extend(state.begun.take());
        }
        self.store(record).await.with_context(advice)
    }

    /// Why the last step should not be undone now.
    pub(super) fn against_undoing(&self, namespace: &str, step: &DoneStep) -> Vec<String> {
        let mut reasons = drift(self, step);
        reasons.extend(
            returning(&self.objects, namespace)
                .iter()
                .map(|workload| format!("{workload} yet, after the step that was undone before")),
        );
        reasons
    }

    /// Undoes the last step, and removes it from the record; the record of no step is deleted.
    ///
    /// # Errors
    /// If an edit fails.
    pub(super) async fn undo(&self, record: &mut Record) -> anyhow::Result<()> {
        let step = record.last().context("no step is recorded")?;
        for edit in &step.undo {
            let object = self.objects.get(&edit.object);
            let is_gone = object.is_none() && matches!(edit.change, Change::Patch { .. });
            if !edit.holds(object) && !is_gone {
                self.perform(edit).await?;
            }
        }

        let Some(state) = &mut record.state else {
            return Ok(());
        };
        if state.begun.take().is_none() {
            state.done.pop();
        }
        if !state.done.is_empty() {
            return self.store(record).await;
        }

        let maps = self.maps(&record.namespace)?;
        let parameters = DeleteParams::default().preconditions(Preconditions {
            resource_version: record.version.clone(),
            uid: None,
        });
        let deleted = maps.delete(RECORD, &parameters).await;
        deleted.map_err(|error| failed(&format!("delete the record {RECORD}"), &error))?;
        Ok(())
    }

    /// Writes the record, unless somebody else has written it since it was read.
    async fn store(&self, record: &mut Record) -> anyhow::Result<()> {
        let text = serde_json::to_string(&record.state)?;
        ensure!(
            text.len() <= MAX_RECORD_BYTES,
            "the record would have {} bytes, more than a ConfigMap holds",
            text.len()
        );

        let mut map = ConfigMap::default();
        map.metadata.name = Some(RECORD.to_owned());
        map.metadata.namespace = Some(record.namespace.clone());
        map.metadata.resource_version.clone_from(&record.version);
        map.data = Some([(KEY.to_owned(), text)].into());

        let maps = self.maps(&record.namespace)?;
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let stored = match &record.version {
            None => maps.create(&parameters, &map).await,
            Some(_) => maps.replace(RECORD, &parameters, &map).await,
        };
        let what = format!("write the record {}/{RECORD}", record.namespace);
        let stored = stored.map_err(|error| failed(&what, &error))?;
        record.version = stored.metadata.resource_version;
        Ok(())
    }

    /// Does one edit. It fails if the object has changed since it was read.
    async fn perform(&self, edit: &Edit) -> anyhow::Result<()> {
        let name = edit.object.name.as_str();
        let objects = self.objects_of(&edit.object)?;
        // Without one, a patch or deletion would apply to whatever has the name.
        let version = || {
            let object = self.objects.get(&edit.object);
            object
                .and_then(|object| object.pointer("/metadata/resourceVersion")?.as_str())
                .with_context(|| format!("{} does not exist", edit.object))
        };

        let done = match &edit.change {
            Change::Create { content } => {
                let object: DynamicObject = serde_json::from_value(content.clone())?;
                let parameters = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                objects.create(&parameters, &object).await.map(|_| ())
            }
            Change::Patch { patch } => {
                let patch = with_version(patch, version()?);
                let parameters = PatchParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                let patched = objects
                    .patch(name, &parameters, &Patch::Merge(&patch))
                    .await;
                patched.map(|_| ())
            }
            Change::Delete => {
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    resource_version: Some(version()?.to_owned()),
                    uid: None,
                });
                objects.delete(name, &parameters).await.map(|_| ())
            }
        };
        done.map_err(|error| failed(&format!("edit {}", edit.object), &error))
    }

    fn maps(&self, namespace: &str) -> anyhow::Result<Api<ConfigMap>> {
        Ok(Api::namespaced(self.client()?.clone(), namespace))
    }

    /// The API of the kind of an object.
    fn objects_of(&self, name: &ObjectName) -> anyhow::Result<Api<DynamicObject>> {
        let Some(edited) = EditedKind::of(name) else {
            bail!("no step edits {name}");
        };
        let kind = GroupVersionKind::gvk(edited.group, edited.version, edited.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, edited.plural);

        let client = self.client()?.clone();
        Ok(if name.namespace.is_empty() {
            Api::all_with(client, &resource)
        } else {
            Api::namespaced_with(client, &name.namespace, &resource)
        })
    }
}

/// The objects of a step that others have edited since: neither as the step left them, nor as they
/// were before it.
pub(super) fn drift(mesh: &Mesh, step: &DoneStep) -> Vec<String> {
    step.edits
        .iter()
        .zip(step.undo.iter().rev())
        .filter(|(edit, undo)| {
            let object = mesh.objects.get(&edit.object);
            !edit.holds(object) && !undo.holds(object)
        })
        .map(|(edit, _)| format!("{} was edited since", edit.object))
        .collect()
}

/// A merge patch that applies only to this version of the object.
fn with_version(patch: &Value, version: &str) -> Value {
    let mut patch = patch.clone();
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), Value::from(version));
        }
    }
    patch
}

/// An error of the API server.
fn failed(what: &str, error: &kube::Error) -> anyhow::Error {
    let advice = if is_conflict(error) {
        ": somebody else has changed it at the same time; try again"
    } else {
        ""
    };
    anyhow::anyhow!("failed to {what}: {}{advice}", InWords(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_apply_only_to_the_version_that_was_read() {
        let labels = json!({ "metadata": { "labels": { "a": "b" } } });
        assert_eq!(
            with_version(&labels, "7"),
            json!({ "metadata": { "labels": { "a": "b" }, "resourceVersion": "7" } })
        );
        let rules = json!({ "spec": { "rules": [] } });
        assert_eq!(
            with_version(&rules, "7"),
            json!({ "spec": { "rules": [] }, "metadata": { "resourceVersion": "7" } })
        );
    }
}
