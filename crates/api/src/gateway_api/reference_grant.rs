//! ReferenceGrant.

use serde::{Deserialize, Serialize};

/// `gateway.networking.k8s.io/ReferenceGrant`: which objects of other namespaces may refer to
/// objects of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReferenceGrant {
    /// The allowed referrers.
    pub from: Vec<GrantFrom>,
    /// Kinds, and names, of objects in the grant's namespace that may be referenced.
    pub to: Vec<GrantTo>,
}

/// An allowed referrer (`ReferenceGrantFrom`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantFrom {
    /// Group of the referrer.
    pub group: String,
    /// Kind of the referrer.
    pub kind: String,
    /// Namespace of the referrer.
    pub namespace: String,
}

/// The objects that may be referenced (`ReferenceGrantTo`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantTo {
    /// Group of the object; empty is the core group.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object; unset matches any.
    #[serde(default)]
    pub name: Option<String>,
}
