//! The objects of a mesh as they were written, by name.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub(crate) use navarch_api::json_object::{
    ObjectKind, annotation, items, label, members, name, namespace, text, texts,
};
use navarch_api::json_object::{group, group_of};
use navarch_api::revision::{REVISION_LABEL, Revision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

    /// Whether it is the name of an object of a kind.
    fn is_of(&self, kind: ObjectKind) -> bool {
        self.kind == kind.kind && self.group() == kind.group
    }

    /// The API group; empty for Kubernetes' core.
    #[must_use]
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
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

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";
const EXTENSIONS: &str = "extensions.istio.io";
const GATEWAY_API: &str = "gateway.networking.k8s.io";

pub(crate) const NAMESPACE: ObjectKind = ObjectKind::new("", "Namespace");
pub(crate) const POD: ObjectKind = ObjectKind::new("", "Pod");
pub(crate) const SERVICE: ObjectKind = ObjectKind::new("", "Service");
pub(crate) const DAEMON_SET: ObjectKind = ObjectKind::new("apps", "DaemonSet");
pub(crate) const AUTHORIZATION: ObjectKind = ObjectKind::new(SECURITY, "AuthorizationPolicy");
pub(crate) const AUTHENTICATION: ObjectKind = ObjectKind::new(SECURITY, "RequestAuthentication");
pub(crate) const VIRTUAL_SERVICE: ObjectKind = ObjectKind::new(NETWORKING, "VirtualService");
pub(crate) const DESTINATION_RULE: ObjectKind = ObjectKind::new(NETWORKING, "DestinationRule");
pub(crate) const SERVICE_ENTRY: ObjectKind = ObjectKind::new(NETWORKING, "ServiceEntry");
pub(crate) const WORKLOAD_ENTRY: ObjectKind = ObjectKind::new(NETWORKING, "WorkloadEntry");
pub(crate) const SIDECAR: ObjectKind = ObjectKind::new(NETWORKING, "Sidecar");
pub(crate) const ENVOY_FILTER: ObjectKind = ObjectKind::new(NETWORKING, "EnvoyFilter");
pub(crate) const WASM_PLUGIN: ObjectKind = ObjectKind::new(EXTENSIONS, "WasmPlugin");
pub(crate) const TRAFFIC_EXTENSION: ObjectKind = ObjectKind::new(EXTENSIONS, "TrafficExtension");
pub(crate) const TELEMETRY: ObjectKind = ObjectKind::new("telemetry.istio.io", "Telemetry");
pub(crate) const GATEWAY: ObjectKind = ObjectKind::new(GATEWAY_API, "Gateway");
pub(crate) const HTTP_ROUTE: ObjectKind = ObjectKind::new(GATEWAY_API, "HTTPRoute");
pub(crate) const GRPC_ROUTE: ObjectKind = ObjectKind::new(GATEWAY_API, "GRPCRoute");

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

    /// Removes the objects that the control plane of a revision does not read, and returns their
    /// names.
    pub(crate) fn take_others(&mut self, revision: Revision<'_>) -> BTreeSet<ObjectName> {
        let is_other = |object: &Value| {
            let label = value_of_label(object, REVISION_LABEL);
            !revision.reads(group(object), text(object, "/kind"), label)
        };
        let others = self.all.extract_if(.., |_, object| is_other(object));
        others.map(|(name, _)| name).collect()
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
            .filter(move |(name, _)| name.is_of(kind))
    }

    /// The object of a namespace itself.
    pub(crate) fn namespace(&self, name: &str) -> Option<(&ObjectName, &Value)> {
        self.find(NAMESPACE, "", name)
    }
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

/// Whether an object has a label with a value, which may be empty.
fn has_label(object: &Value, key: &str, wanted: &str) -> bool {
    value_of_label(object, key).is_some_and(|value| value == wanted)
}

/// The value of a label, which may be empty.
fn value_of_label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    let labels = object.pointer("/metadata/labels")?;
    labels.get(key)?.as_str()
}

/// Sets a label or an annotation of an object.
pub(crate) fn set_metadata(object: &mut Value, field: &str, key: &str, value: &str) {
    crate::edit::merge(
        object,
        &serde_json::json!({ "metadata": { field: { key: value } } }),
    );
}
