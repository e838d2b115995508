//! References from one object to another.

use serde::{Deserialize, Serialize};

use super::{RouteFilter, gateway_group, gateway_kind, secret_kind, service_kind};

/// What a route attaches to: a Gateway, a ListenerSet, a Service or a ServiceEntry (`ParentReference`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// Group of the parent.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// Kind of the parent.
    #[serde(default = "gateway_kind")]
    pub kind: String,
    /// Namespace of the parent; absent is the route's.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Name of the parent.
    pub name: String,
    /// The listener of that name only.
    #[serde(default)]
    pub section_name: Option<String>,
    /// The listeners, or the Service's port, of that number only.
    #[serde(default)]
    pub port: Option<i32>,
}

/// Where requests go (`BackendRef`, `HTTPBackendRef`, `GRPCBackendRef`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// Group of the backend; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// Kind of the backend.
    #[serde(default = "service_kind")]
    pub kind: String,
    /// Name of the backend.
    pub name: String,
    /// Namespace of the backend; absent is the route's.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Listener port to attach to, or port of a mesh Service; all if absent.
    #[serde(default)]
    pub port: Option<i32>,
    /// Its share of the requests, relative to the others'.
    #[serde(default = "one")]
    pub weight: i32,
    /// What is done to requests that go there. Routes of TCP and TLS have none.
    #[serde(default)]
    pub filters: Vec<RouteFilter>,
}

/// Where copies of requests go (`BackendObjectReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendObject {
    /// Group of the backend; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// Kind of the backend.
    #[serde(default = "service_kind")]
    pub kind: String,
    /// Name of the backend.
    pub name: String,
    /// Namespace of the backend; absent is the route's.
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
    /// Namespace of the object; absent is the referrer's.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// An object of any kind (`ObjectReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group of the object; empty is the core group.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; absent is the referrer's.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// An object of any kind in the referrer's namespace (`LocalObjectReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalObject {
    /// Group of the object; empty is the core group.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

impl BackendRef {
    /// The object that it names, without weight and filters.
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

/// The weight of a backend that names none.
fn one() -> i32 {
    1
}
