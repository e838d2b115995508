//! The CustomResourceDefinitions of Istio's kinds, generated from the Rust types of their specs.
//!
//! ```text
//! Rust type ──schemars──▶ definitions ──limits (by type and field)──▶ structural (one tree per kind) ──▶ CRD
//! ```
//!
//! Groups, versions, names, columns and every field are those of Istio's CRDs
//! (`manifests/charts/base`), so that either project's CRDs can replace the other's; all limits of
//! Istio's CRDs apply here, too.

mod document;
mod kinds;
mod limit;
mod limits;
mod structural;

use serde_json::Value;

use kinds::KINDS;

/// The definitions of all kinds, in the order of their groups and names.
#[must_use]
pub fn documents() -> Vec<Value> {
    KINDS.iter().map(document::document).collect()
}

/// A kind in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinedKind {
    /// With its domain, such as `networking.istio.io`.
    pub group: String,
    /// The version to read and write.
    pub version: &'static str,
    /// The value of `kind:`.
    pub kind: &'static str,
    /// Its plural, as in URLs.
    pub plural: &'static str,
}

/// The kinds that are defined, in the order of their groups and names.
pub fn kinds() -> impl Iterator<Item = DefinedKind> {
    KINDS.iter().map(|kind| DefinedKind {
        group: format!("{}.istio.io", kind.group),
        version: kind.versions.first().copied().unwrap_or("v1"),
        kind: kind.kind,
        plural: kind.plural,
    })
}

/// Whether a kind is defined under this group and plural, and served in this version.
#[must_use]
pub fn is_defined(group: &str, version: &str, plural: &str) -> bool {
    let group = group.strip_suffix(".istio.io").unwrap_or_default();
    KINDS.iter().any(|kind| {
        kind.group == group && kind.plural == plural && kind.versions.contains(&version)
    })
}

/// The definitions of all kinds as YAML documents.
#[must_use]
pub fn yaml() -> String {
    let mut text = String::new();
    for document in documents() {
        text.push_str("---\n");
        let written = serde_saphyr::to_fmt_writer(&mut text, &document);
        written.expect("YAML can express every JSON value, and writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests;
