//! Edits of objects, as merge patches, and their inverse.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::objects::{ObjectName, Objects};

/// The annotation of pod templates by which pods are restarted, as by `kubectl rollout restart`.
pub(crate) const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";

/// What an edit does with its object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub enum Change {
    /// Creates the object.
    Create {
        /// As it is sent to the API server.
        content: Value,
    },
    /// Changes fields of the object.
    Patch {
        /// A merge patch: `null` removes a field, a list replaces the whole list.
        patch: Value,
    },
    /// Deletes the object.
    Delete,
}

/// An edit of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edit {
    /// What is edited, by API group, kind and name.
    pub object: ObjectName,
    /// What is done with it.
    #[serde(flatten)]
    pub change: Change,
}

/// A field that an edit changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The path, such as `metadata.labels.[istio.io/use-waypoint]`.
    pub field: String,
    /// The value before; `None` if the field was missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value after; `None` if the field is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

impl Edit {
    /// Creates an object.
    pub(crate) fn create(object: Value) -> Self {
        Self {
            object: ObjectName::of(&object),
            change: Change::Create { content: object },
        }
    }

    /// Changes fields of an object.
    pub(crate) fn patch(object: &ObjectName, patch: Value) -> Self {
        Self {
            object: object.clone(),
            change: Change::Patch { patch },
        }
    }

    /// Applies the edit to objects in memory.
    pub(crate) fn apply(&self, objects: &mut Objects) {
        match &self.change {
            Change::Create { content } => objects.add(content.clone()),
            Change::Patch { patch } => {
                if let Some(object) = objects.get_mut(&self.object) {
                    merge(object, patch);
                }
            }
            Change::Delete => objects.remove(&self.object),
        }
    }

    /// Whether the object is as the edit leaves it. Fields that the edit does not name may differ:
    /// servers add defaults and statuses. So may the time of the last restart: users restart their
    /// workloads, too.
    #[must_use]
    pub fn holds(&self, object: Option<&Value>) -> bool {
        match (&self.change, object) {
            (Change::Create { content }, Some(object)) => contains(object, content),
            (Change::Patch { patch }, Some(object)) => is_merged(Some(object), patch),
            (Change::Delete, None) => true,
            (Change::Create { .. } | Change::Patch { .. }, None) | (Change::Delete, Some(_)) => {
                false
            }
        }
    }

    /// The edit that restores the object, given the object before this edit. `None` if this edit
    /// does not apply to it: there is an object to create already, or none to patch or delete.
    #[must_use]
    pub fn inverse(&self, before: Option<&Value>) -> Option<Self> {
        let change = match (&self.change, before) {
            (Change::Create { .. }, None) => Change::Delete,
            (Change::Patch { patch }, Some(before)) => Change::Patch {
                patch: inverse(before, patch),
            },
            (Change::Delete, Some(before)) => Change::Create {
                content: without_server_fields(before.clone()),
            },
            (Change::Create { .. }, Some(_)) | (Change::Patch { .. } | Change::Delete, None) => {
                return None;
            }
        };
        Some(Self {
            object: self.object.clone(),
            change,
        })
    }

    /// The fields that a patch changes, given the object before it; none for other edits.
    #[must_use]
    pub fn fields(&self, before: Option<&Value>) -> Vec<FieldChange> {
        let Change::Patch { patch } = &self.change else {
            return Vec::new();
        };
        let mut fields = Vec::new();
        add_fields(String::new(), before, patch, &mut fields);
        fields
    }

    /// The edit with all texts `from` in its patch replaced.
    #[must_use]
    pub fn with_text(&self, from: &str, to: &str) -> Self {
        let mut edit = self.clone();
        if let Change::Patch { patch } = &mut edit.change {
            replace(patch, from, to);
        }
        edit
    }
}

/// Applies a merge patch (RFC 7396).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        target.clone_from(patch);
        return;
    };

    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else {
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            members.remove(key);
        } else {
            merge(members.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Whether a value has what a merge patch sets, and lacks what it removes.
fn is_merged(value: Option<&Value>, patch: &Value) -> bool {
    if let Some(fields) = patch.as_object() {
        return fields
            .iter()
            .filter(|(key, _)| *key != RESTARTED)
            .all(|(key, patch)| is_merged(value.and_then(|value| value.get(key)), patch));
    }
    match value {
        None => patch.is_null(),
        Some(value) => value == patch,
    }
}

/// The merge patch that undoes another one.
fn inverse(before: &Value, patch: &Value) -> Value {
    let Some(fields) = patch.as_object() else {
        return before.clone();
    };
    let restored = fields.iter().map(|(key, value)| {
        let old = match before.get(key) {
            // Only what the patch adds is removed again, not what others add beside it.
            None if value.is_object() => inverse(&Value::Null, value),
            None => Value::Null,
            Some(old) if old.is_object() && value.is_object() => inverse(old, value),
            Some(old) => old.clone(),
        };
        (key.clone(), old)
    });
    Value::Object(restored.collect())
}

/// Whether a value has everything of another one: lists item by item, maps at least its members.
fn contains(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| value.get(key).is_some_and(|value| contains(value, wanted))),
        (Value::Array(value), Value::Array(wanted)) => {
            value.len() == wanted.len()
                && value
                    .iter()
                    .zip(wanted)
                    .all(|(value, wanted)| contains(value, wanted))
        }
        _ => value == wanted,
    }
}

/// An object without what its server sets.
fn without_server_fields(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "creationTimestamp",
            "generation",
            "managedFields",
            "resourceVersion",
            "uid",
        ] {
            metadata.remove(field);
        }
    }
    object
}

fn add_fields(path: String, before: Option<&Value>, patch: &Value, fields: &mut Vec<FieldChange>) {
    let Some(members) = patch.as_object() else {
        let after = (!patch.is_null()).then(|| patch.clone());
        if before != after.as_ref() {
            fields.push(FieldChange {
                field: path,
                before: before.cloned(),
                after,
            });
        }
        return;
    };

    for (key, value) in members {
        let key_text = if key.contains('.') {
            format!("[{key}]")
        } else {
            key.clone()
        };
        let path = if path.is_empty() {
            key_text
        } else {
            format!("{path}.{key_text}")
        };
        add_fields(
            path,
            before.and_then(|before| before.get(key)),
            value,
            fields,
        );
    }
}

/// Replaces texts that equal `from`.
fn replace(value: &mut Value, from: &str, to: &str) {
    if let Some(members) = value.as_object_mut() {
        members.values_mut().for_each(|one| replace(one, from, to));
    } else if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(|one| replace(one, from, to));
    } else if value.as_str() == Some(from) {
        *value = Value::from(to);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace() -> ObjectName {
        ObjectName {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
            namespace: String::new(),
            name: "shop".to_owned(),
        }
    }

    #[test]
    fn the_inverse_of_a_patch_restores_the_object() {
        let before = json!({ "metadata": { "name": "shop", "labels": { "a": "1", "b": "2" } }, "spec": { "rules": [1, 2] } });
        for patch in [
            json!({ "metadata": { "labels": { "a": null, "c": "3" } } }),
            json!({ "metadata": { "labels": null } }),
            json!({ "spec": { "rules": [3] } }),
            json!({ "spec": null }),
        ] {
            let edit = Edit::patch(&namespace(), patch);
            let undo = edit.inverse(Some(&before)).unwrap();
            let mut objects = before.clone();
            for one in [&edit, &undo] {
                let Change::Patch { patch } = &one.change else {
                    panic!("{one:?}")
                };
                merge(&mut objects, patch);
                assert!(one.holds(Some(&objects)), "{one:?}");
            }
            assert_eq!(objects, before, "{edit:?}");
        }
    }

    #[test]
    fn the_inverse_of_an_addition_keeps_what_others_add_beside_it() {
        let before = json!({ "metadata": { "name": "shop" } });
        let edit = Edit::patch(
            &namespace(),
            json!({ "metadata": { "annotations": { "x": "y" } } }),
        );
        let undo = edit.inverse(Some(&before)).unwrap();
        let later = json!({ "metadata": { "name": "shop", "annotations": { "x": "y", "z": "" } } });
        let Change::Patch { patch } = &undo.change else {
            panic!("{undo:?}")
        };
        let mut restored = later;
        merge(&mut restored, patch);

        let kept = json!({ "metadata": { "name": "shop", "annotations": { "z": "" } } });
        assert_eq!(restored, kept);
        assert!(undo.holds(Some(&before)) && undo.holds(Some(&kept)));
    }

    #[test]
    fn an_edit_holds_if_the_server_added_fields_but_not_if_a_user_changed_its_own() {
        let wanted = json!({ "metadata": { "name": "shop" }, "spec": { "rules": [{ "a": 1 }] } });
        let edit = Edit {
            object: namespace(),
            change: Change::Create {
                content: wanted.clone(),
            },
        };
        assert!(!edit.holds(None));
        assert!(edit.holds(Some(&wanted)));

        let served = json!({ "metadata": { "name": "shop", "uid": "x" }, "spec": { "rules": [{ "a": 1 }] }, "status": {} });
        assert!(edit.holds(Some(&served)));
        let edited =
            json!({ "metadata": { "name": "shop" }, "spec": { "rules": [{ "a": 1 }, {}] } });
        assert!(!edit.holds(Some(&edited)));
    }

    #[test]
    fn fields_show_the_values_before_and_after() {
        let before = json!({ "metadata": { "labels": { "istio-injection": "enabled" } } });
        let edit = Edit::patch(
            &namespace(),
            json!({ "metadata": { "labels": { "istio-injection": "disabled", "istio.io/dataplane-mode": "ambient" } } }),
        );
        let fields = edit.fields(Some(&before));
        let field = |name: &str, before: Option<&str>, after: &str| FieldChange {
            field: format!("metadata.labels.{name}"),
            before: before.map(Value::from),
            after: Some(Value::from(after)),
        };
        assert_eq!(
            fields,
            [
                field("istio-injection", Some("enabled"), "disabled"),
                field("[istio.io/dataplane-mode]", None, "ambient"),
            ]
        );
    }

    #[test]
    fn a_restart_by_a_user_is_no_edit_of_the_fields_of_a_step() {
        let template = |labels: Value, restarted: &str| {
            let annotations = json!({ RESTARTED: restarted });
            let metadata = json!({ "labels": labels, "annotations": annotations });
            json!({ "spec": { "template": { "metadata": metadata } } })
        };
        let before = json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } });
        let label = "sidecar.istio.io/inject";
        let edit = Edit::patch(&namespace(), template(json!({ label: "false" }), "then"));
        let undo = edit.inverse(Some(&before)).unwrap();

        let restarted = template(json!({ "a": "b", label: "false" }), "later");
        assert!(edit.holds(Some(&restarted)));
        assert!(!undo.holds(Some(&restarted)));
        let undone = template(json!({ "a": "b" }), "later");
        assert!(undo.holds(Some(&undone)));
        assert!(!edit.holds(Some(&undone)));

        let edited = template(json!({ "a": "b", label: "true" }), "later");
        assert!(!edit.holds(Some(&edited)) && !undo.holds(Some(&edited)));
    }
}
