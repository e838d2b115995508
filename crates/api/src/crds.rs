//! The CustomResourceDefinitions of Istio's kinds, generated from the Rust types of their specs.
//!
//! Groups, versions, names, columns and every field are those of Istio's CRDs
//! (`manifests/charts/base`), so that either project's CRDs can replace the other's; all limits of
//! Istio's CRDs apply here, too.
//!
//! A unit test generates them, and the program contains its result: the schemas of all types would
//! be a sixth of this crate's code, for one command.

#[cfg(test)]
mod generated;
mod kinds;

use kinds::KINDS;

/// The definitions of all kinds as YAML documents, in the order of their groups and names.
pub const YAML: &str = include_str!("../../../deploy/charts/navarch/crds/istio.yaml");

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

#[cfg(test)]
mod tests;
