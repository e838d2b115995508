//! References from one object to another.

use serde::{Deserialize, Serialize};

use super::{RouteFilter, gateway_group, gateway_kind, secret_kind, service_kind};

/// The parent of a route: a Gateway, a ListenerSet, a Service or a ServiceEntry
/// (`ParentReference`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// `gateway.networking.k8s.io` by default; empty is the core group, which a Service needs.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// `Gateway` by default. Parents of unknown kinds are ignored: they may be for another
    /// controller.
    #[serde(default = "gateway_kind")]
    pub kind: String,
    /// Namespace of the parent; unset is the route's namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// `metadata.name` of the parent.
    pub name: String,
    /// Restricts the parent to the listener of this name.
    #[serde(default)]
    pub section_name: Option<String>,
    /// Restricts the parent to the listeners, or the Service's port, with this number.
    #[serde(default)]
    pub port: Option<i32>,
}

/// A backend of requests (`BackendRef`, `HTTPBackendRef`, `GRPCBackendRef`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// Group of the backend; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// `Service` by default; with their groups also `Hostname`, `ServiceImport`, `XBackend` and
    /// `InferencePool`.
    #[serde(default = "service_kind")]
    pub kind: String,
    /// `metadata.name` of the backend; for the kind `Hostname` the host itself.
    pub name: String,
    /// Namespace of the backend; unset is the route's namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Port of the Service; not its target port.
    #[serde(default)]
    pub port: Option<i32>,
    /// Weight relative to the other backends.
    #[serde(default = "one")]
    pub weight: i32,
    /// Filters for requests to this backend. Empty for routes of TCP and TLS.
    #[serde(default)]
    pub filters: Vec<RouteFilter>,
}

/// The target of mirrored requests (`BackendObjectReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendObject {
    /// Group of the backend; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// `Service` by default; with their groups also `Hostname`, `ServiceImport`, `XBackend` and
    /// `InferencePool`.
    #[serde(default = "service_kind")]
    pub kind: String,
    /// `metadata.name` of the backend; for the kind `Hostname` the host itself.
    pub name: String,
    /// Namespace of the backend; unset is the route's namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Port of the Service; not its target port.
    #[serde(default)]
    pub port: Option<i32>,
}

/// A Secret with a certificate (`SecretObjectReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRef {
    /// Group of the object; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// Kind of the object.
    #[serde(default = "secret_kind")]
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; unset is the referrer's namespace.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// An object of any kind (`ObjectReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group of the object; empty is the core group.
    pub group: String,
    /// Required, such as `ConfigMap` for CA certificates.
    pub kind: String,
    /// `metadata.name` of the object.
    pub name: String,
    /// Namespace of the object; unset is the referrer's namespace.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// An object of any kind in the referrer's namespace (`LocalObjectReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalObject {
    /// Group of the object; empty is the core group.
    pub group: String,
    /// Required, such as `ConfigMap` for CA certificates.
    pub kind: String,
    /// `metadata.name` of the object.
    pub name: String,
}

impl BackendRef {
    /// The referenced object, without weight and filters.
    #[must_use]
    pub fn object(&self) -> BackendObject {
        BackendObject {
            group: self.group.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            port: self.port,
        }
    }
}

/// The default weight of a backend.
fn one() -> i32 {
    1
}
