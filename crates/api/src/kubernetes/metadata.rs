//! Conversion of `metav1.ObjectMeta` to our own metadata.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as wire;

use crate::field_error::FieldError;
use crate::names::Namespace;
use crate::object::{ControllerRef, NamespacedName, ObjectMeta};
use crate::text_map::TextMap;
use crate::uid::Uid;

/// Text, empty if absent. Empty text takes no allocation.
pub(super) fn text(value: Option<String>) -> Arc<str> {
    match value {
        Some(value) if !value.is_empty() => Arc::from(value),
        _ => Arc::default(),
    }
}

/// Text, where empty means absent.
pub(super) fn optional_text(value: Option<String>) -> Option<Arc<str>> {
    value.filter(|value| !value.is_empty()).map(Arc::from)
}

/// A map of text, empty when absent.
pub(super) fn text_map(value: Option<BTreeMap<String, String>>) -> TextMap {
    let entries = value.into_iter().flatten();
    entries
        .map(|(key, value)| (Arc::from(key), Arc::from(value)))
        .collect()
}

impl TryFrom<wire::ObjectMeta> for ObjectMeta {
    type Error = FieldError;

    fn try_from(meta: wire::ObjectMeta) -> Result<Self, FieldError> {
        let name = text(meta.name);
        if name.is_empty() {
            return Err(FieldError::new("metadata.name", "is required"));
        }

        let controller = meta
            .owner_references
            .into_iter()
            .flatten()
            .find(|owner| owner.controller == Some(true));

        Ok(Self {
            key: NamespacedName::of(
                meta.namespace
                    .filter(|name| !name.is_empty())
                    .map(Namespace::new)
                    .unwrap_or_default(),
                name,
            ),
            labels: text_map(meta.labels),
            annotations: text_map(meta.annotations),
            created: meta.creation_timestamp.map(|time| time.0),
            resource_version: text(meta.resource_version),
            generation: meta.generation.unwrap_or_default(),
            uid: meta.uid.map(|uid| Uid::new(&uid)).unwrap_or_default(),
            controller: controller.map(|owner| {
                Arc::new(ControllerRef {
                    kind: owner.kind.into(),
                    name: owner.name.into(),
                })
            }),
            deleting: meta.deletion_timestamp.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_controlling_owner_is_kept() {
        let owner = |kind: &str, name: &str, controller| wire::OwnerReference {
            kind: kind.into(),
            name: name.into(),
            controller,
            ..Default::default()
        };

        let meta = wire::ObjectMeta {
            name: Some("reviews-1".into()),
            owner_references: Some(vec![
                owner("Node", "a", None),
                owner("ReplicaSet", "reviews", Some(true)),
            ]),
            ..Default::default()
        };

        let meta = ObjectMeta::try_from(meta).unwrap();
        let controller = ControllerRef {
            kind: "ReplicaSet".into(),
            name: "reviews".into(),
        };
        assert_eq!(meta.controller, Some(Arc::new(controller)));
    }

    #[test]
    fn a_name_is_required() {
        let error = ObjectMeta::try_from(wire::ObjectMeta::default()).unwrap_err();
        assert_eq!(error.path, "metadata.name");
    }
}
