//! The objects of an installation, as they were written.

use serde_json::{Map, Value};

/// Group and kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectKind {
    /// Empty for Kubernetes' core.
    group: &'static str,
    kind: &'static str,
}

const fn kind(group: &'static str, kind: &'static str) -> ObjectKind {
    ObjectKind { group, kind }
}

pub(super) const CONFIG_MAP: ObjectKind = kind("", "ConfigMap");
pub(super) const SECRET: ObjectKind = kind("", "Secret");
pub(super) const POD: ObjectKind = kind("", "Pod");
pub(super) const DEPLOYMENT: ObjectKind = kind("apps", "Deployment");
pub(super) const DAEMON_SET: ObjectKind = kind("apps", "DaemonSet");
pub(super) const AUTOSCALER: ObjectKind = kind("autoscaling", "HorizontalPodAutoscaler");
pub(super) const INJECTION: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "MutatingWebhookConfiguration",
);
pub(super) const VALIDATION: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
);
pub(super) const DEFINITION: ObjectKind = kind("apiextensions.k8s.io", "CustomResourceDefinition");
pub(super) const KUBERNETES_GATEWAY: ObjectKind = kind("gateway.networking.k8s.io", "Gateway");
pub(super) const ENVOY_FILTER: ObjectKind = kind("networking.istio.io", "EnvoyFilter");

/// The objects of an installation. Values of Secrets are dropped when they are added.
#[derive(Debug, Default)]
pub struct Objects {
    all: Vec<Value>,
}

impl Objects {
    /// Adds an object, or the objects of a list as `kubectl get -o yaml` prints it.
    pub fn add(&mut self, mut object: Value) {
        // A document of comments alone.
        if object.is_null() {
            return;
        }

        if text(&object, "/kind").ends_with("List")
            && let Some(Value::Array(items)) = object.get_mut("items").map(Value::take)
        {
            for item in items {
                self.add(item);
            }
            return;
        }

        if SECRET.is_of(&object) {
            drop_values(&mut object);
        }
        self.all.push(object);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Value> {
        self.all.iter()
    }

    /// The objects of a kind.
    pub(super) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = &Value> {
        self.all.iter().filter(move |object| kind.is_of(object))
    }
}

impl ObjectKind {
    /// Whether an object is of this kind, in any version.
    fn is_of(self, object: &Value) -> bool {
        text(object, "/kind") == self.kind && group(object) == self.group
    }
}

/// Drops the values of a Secret, and annotations, in which kubectl keeps a copy of them.
fn drop_values(secret: &mut Value) {
    for field in ["data", "stringData"] {
        let entries = secret.get_mut(field).and_then(Value::as_object_mut);
        for value in entries.into_iter().flat_map(Map::values_mut) {
            *value = Value::Null;
        }
    }
    if let Some(metadata) = secret.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
        metadata.remove("managedFields");
    }
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The items of a list at a JSON pointer.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The group of an object; empty for Kubernetes' core.
pub(super) fn group(object: &Value) -> &str {
    let version = text(object, "/apiVersion");
    version.split_once('/').map_or("", |(group, _)| group)
}

/// `metadata.name`.
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.namespace`; empty if there is none.
pub(super) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// A label.
pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// An annotation.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    annotations.get(key)?.as_str()
}

/// The keys of a map at a JSON pointer, in their order.
pub(super) fn keys(object: &Value, pointer: &str) -> Vec<String> {
    let members = object.pointer(pointer).and_then(Value::as_object);
    members.into_iter().flat_map(Map::keys).cloned().collect()
}

/// Kind, namespace and name, as users know them.
pub(super) fn title(object: &Value) -> String {
    let kind = text(object, "/kind");
    match namespace(object) {
        "" => format!("{kind} {}", name(object)),
        namespace => format!("{kind} {namespace}/{}", name(object)),
    }
}
