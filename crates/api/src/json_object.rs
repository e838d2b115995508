//! Objects as they were written: fields of their JSON, by JSON pointers (RFC 6901). A field that is
//! missing, or of another type, is empty.

use serde_json::{Map, Value};

/// API group and kind of objects, in any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKind {
    /// Empty for Kubernetes' core.
    pub group: &'static str,
    /// Such as `Gateway`.
    pub kind: &'static str,
}

impl ObjectKind {
    /// The kind of this API group and name.
    #[must_use]
    pub const fn new(group: &'static str, kind: &'static str) -> Self {
        Self { group, kind }
    }

    /// Whether an object is of this kind.
    #[must_use]
    pub fn is_of(self, object: &Value) -> bool {
        text(object, "/kind") == self.kind && group(object) == self.group
    }
}

/// The text at a JSON pointer.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The items of a list at a JSON pointer.
pub fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The texts of a list at a JSON pointer.
pub fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    items(object, pointer).filter_map(Value::as_str)
}

/// The members of a map at a JSON pointer.
pub fn members<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    let map = object.pointer(pointer).and_then(Value::as_object);
    map.into_iter().flat_map(Map::iter)
}

/// The API group; empty for Kubernetes' core.
#[must_use]
pub fn group(object: &Value) -> &str {
    group_of(text(object, "/apiVersion"))
}

/// The group in a group and version; empty for Kubernetes' core.
#[must_use]
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// `metadata.name`.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.namespace`.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// The value of a label.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    entry(object, "/metadata/labels", key)
}

/// The value of an annotation.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    entry(object, "/metadata/annotations", key)
}

/// The text under a key, which may have any characters, of the map at a JSON pointer.
#[must_use]
pub fn entry<'a>(object: &'a Value, pointer: &str, key: &str) -> &'a str {
    let map = object.pointer(pointer);
    map.and_then(|map| map.get(key)?.as_str())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_missing_or_of_another_type_are_empty() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "labels": { "istio.io/rev": "canary", "n": 1 } },
            "spec": { "list": ["a", 1, "b"] },
        });
        assert!(ObjectKind::new("apps", "Deployment").is_of(&object));
        assert!(!ObjectKind::new("", "Deployment").is_of(&object));
        assert_eq!(name(&object), "web");
        assert_eq!(namespace(&object), "");
        assert_eq!(label(&object, "istio.io/rev"), "canary");
        assert_eq!(label(&object, "n"), "");
        assert_eq!(annotation(&object, "istio.io/rev"), "");

        assert_eq!(items(&object, "/spec/list").count(), 3);
        assert_eq!(texts(&object, "/spec/list").collect::<String>(), "ab");
        assert_eq!(members(&object, "/spec/list").count(), 0);
    }
}
