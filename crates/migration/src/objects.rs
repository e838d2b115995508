//! The objects of a mesh as they were written, by name.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What identifies an object to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    /// Group and version.
    pub api_version: String,
    /// Such as `AuthorizationPolicy`.
    pub kind: String,
    /// Empty for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

impl ObjectName {
    /// The name of an object with this content.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self {
            api_version: text(object, "/apiVersion").to_owned(),
            kind: text(object, "/kind").to_owned(),
            namespace: namespace(object).to_owned(),
            name: name(object).to_owned(),
        }
    }

    /// The first name of a kind, in any version, at a namespace and name.
    fn first(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self {
            api_version: String::new(),
            kind: kind.kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// In the order of comparison: the objects of a kind are together, by namespace.
    fn key(&self) -> [&str; 4] {
        [&self.kind, &self.namespace, &self.name, &self.api_version]
    }

    /// The API group; empty for Kubernetes' core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }
}

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A kind in any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectKind {
    /// Empty for Kubernetes' core.
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
}

const fn kind(group: &'static str, kind: &'static str) -> ObjectKind {
    ObjectKind { group, kind }
}

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";
const EXTENSIONS: &str = "extensions.istio.io";
const GATEWAY_API: &str = "gateway.networking.k8s.io";

pub(crate) const NAMESPACE: ObjectKind = kind("", "Namespace");
pub(crate) const POD: ObjectKind = kind("", "Pod");
pub(crate) const SERVICE: ObjectKind = kind("", "Service");
pub(crate) const DAEMON_SET: ObjectKind = kind("apps", "DaemonSet");
pub(crate) const AUTHORIZATION: ObjectKind = kind(SECURITY, "AuthorizationPolicy");
pub(crate) const AUTHENTICATION: ObjectKind = kind(SECURITY, "RequestAuthentication");
pub(crate) const VIRTUAL_SERVICE: ObjectKind = kind(NETWORKING, "VirtualService");
pub(crate) const DESTINATION_RULE: ObjectKind = kind(NETWORKING, "DestinationRule");
pub(crate) const SERVICE_ENTRY: ObjectKind = kind(NETWORKING, "ServiceEntry");
pub(crate) const WORKLOAD_ENTRY: ObjectKind = kind(NETWORKING, "WorkloadEntry");
pub(crate) const SIDECAR: ObjectKind = kind(NETWORKING, "Sidecar");
pub(crate) const ENVOY_FILTER: ObjectKind = kind(NETWORKING, "EnvoyFilter");
pub(crate) const WASM_PLUGIN: ObjectKind = kind(EXTENSIONS, "WasmPlugin");
pub(crate) const TRAFFIC_EXTENSION: ObjectKind = kind(EXTENSIONS, "TrafficExtension");
pub(crate) const TELEMETRY: ObjectKind = kind("telemetry.istio.io", "Telemetry");
pub(crate) const GATEWAY: ObjectKind = kind(GATEWAY_API, "Gateway");
pub(crate) const HTTP_ROUTE: ObjectKind = kind(GATEWAY_API, "HTTPRoute");
pub(crate) const GRPC_ROUTE: ObjectKind = kind(GATEWAY_API, "GRPCRoute");

/// The label of objects that steps create.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "navarch-migrate");

/// The objects of a mesh.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    all: BTreeMap<ObjectName, Value>,
}

impl Objects {
    /// Adds or replaces an object, or the objects of a list as `kubectl get -o yaml` prints it.
    /// Secrets are left out: no step depends on them.
    pub fn add(&mut self, mut object: Value) {
        if text(&object, "/kind").ends_with("List")
            && let Some(Value::Array(items)) = object.get_mut("items").map(Value::take)
        {
            for item in items {
                self.add(item);
            }
            return;
        }

        let name = ObjectName::of(&object);
        if name.kind.is_empty() || name.kind == "Secret" {
            return;
        }
        self.all.insert(name, object);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All objects, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectName, &Value)> {
        self.all.iter()
    }

    /// An object by its exact name.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<&Value> {
        self.all.get(name)
    }

    /// An object, to change it.
    pub(crate) fn get_mut(&mut self, name: &ObjectName) -> Option<&mut Value> {
        self.all.get_mut(name)
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, name: &ObjectName) {
        self.all.remove(name);
    }

    /// The objects of a kind.
    pub(crate) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = (&ObjectName, &Value)> {
        self.from(kind, "", "")
    }

    /// The objects of a kind in a namespace.
    pub(crate) fn within<'a>(
        &'a self,
        kind: ObjectKind,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a ObjectName, &'a Value)> {
        self.from(kind, namespace, "")
            .take_while(move |(name, _)| name.namespace == namespace)
    }

    /// An object by its kind, in any version.
    pub(crate) fn find(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Option<(&ObjectName, &Value)> {
        self.from(kind, namespace, name)
            .next()
            .filter(|(found, _)| found.namespace == namespace && found.name == name)
    }

    /// The objects of a kind from a namespace and name on.
    fn from(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (&ObjectName, &Value)> + use<'_> {
        self.all
            .range(ObjectName::first(kind, namespace, name)..)
            .take_while(move |(name, _)| name.kind == kind.kind)
            .filter(move |(name, _)| kind.is_of(name))
    }

    /// The object of a namespace itself.
    pub(crate) fn namespace(&self, name: &str) -> Option<(&ObjectName, &Value)> {
        self.find(NAMESPACE, "", name)
    }
}

impl ObjectKind {
    /// Whether an object of this name is of the kind.
    pub(crate) fn is_of(self, name: &ObjectName) -> bool {
        name.kind == self.kind && name.group() == self.group
    }
}

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The items of a list at a JSON pointer.
pub(crate) fn items<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = &'a Value> + use<'a> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The texts of a list at a JSON pointer.
pub(crate) fn texts<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = &'a str> + use<'a> {
    items(object, pointer).filter_map(Value::as_str)
}

/// The members of a map at a JSON pointer.
pub(crate) fn members<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    let map = object.pointer(pointer).and_then(Value::as_object);
    map.into_iter().flat_map(Map::iter)
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.namespace`; empty if there is none.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// A label; empty if there is none.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    metadata(object, "labels", key)
}

/// An annotation; empty if there is none.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    metadata(object, "annotations", key)
}

fn metadata<'a>(object: &'a Value, field: &str, key: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field)?.get(key)?.as_str())
        .unwrap_or_default()
}

/// Whether a map of labels at a JSON pointer of `selecting` selects an object; one without labels
/// selects all.
pub(crate) fn selects(selecting: &Value, pointer: &str, object: &Value) -> bool {
    members(selecting, pointer).all(|(key, value)| {
        value
            .as_str()
            .is_some_and(|wanted| has_label(object, key, wanted))
    })
}

fn has_label(object: &Value, key: &str, wanted: &str) -> bool {
    let labels = object.pointer("/metadata/labels");
    labels
        .and_then(|labels| labels.get(key)?.as_str())
        .is_some_and(|value| value == wanted)
}

/// Sets a label or an annotation of an object.
pub(crate) fn set_metadata(object: &mut Value, field: &str, key: &str, value: &str) {
    crate::edit::merge(
        object,
        &serde_json::json!({ "metadata": { field: { key: value } } }),
    );
}
