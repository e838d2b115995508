//! The objects of an installation, as they were written.

use navarch_api::json_object::members;
pub(super) use navarch_api::json_object::{
    ObjectKind, annotation, group, items, label, name, namespace, text,
};
use serde_json::{Map, Value};

pub(super) const CONFIG_MAP: ObjectKind = ObjectKind::new("", "ConfigMap");
pub(super) const SECRET: ObjectKind = ObjectKind::new("", "Secret");
pub(super) const POD: ObjectKind = ObjectKind::new("", "Pod");
pub(super) const DAEMON_SET: ObjectKind = ObjectKind::new("apps", "DaemonSet");
pub(super) const AUTOSCALER: ObjectKind = ObjectKind::new("autoscaling", "HorizontalPodAutoscaler");
pub(super) const INJECTION: ObjectKind = ObjectKind::new(
    "admissionregistration.k8s.io",
    "MutatingWebhookConfiguration",
);
pub(super) const VALIDATION: ObjectKind = ObjectKind::new(
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
);
pub(super) const DEFINITION: ObjectKind =
    ObjectKind::new("apiextensions.k8s.io", "CustomResourceDefinition");
pub(super) const KUBERNETES_GATEWAY: ObjectKind =
    ObjectKind::new("gateway.networking.k8s.io", "Gateway");
pub(super) const ENVOY_FILTER: ObjectKind = ObjectKind::new("networking.istio.io", "EnvoyFilter");

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

/// The keys of a map at a JSON pointer, in their order.
pub(super) fn keys(object: &Value, pointer: &str) -> Vec<String> {
    members(object, pointer)
        .map(|(key, _)| key.clone())
        .collect()
}

/// Kind, namespace and name, as users know them.
pub(super) fn title(object: &Value) -> String {
    let kind = text(object, "/kind");
    match namespace(object) {
        "" => format!("{kind} {}", name(object)),
        namespace => format!("{kind} {namespace}/{}", name(object)),
    }
}
