//! BackendTLSPolicy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LocalObject;

/// `gateway.networking.k8s.io/BackendTLSPolicy`: TLS settings for connections to backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsPolicy {
    /// Services whose TLS the policy describes, in its own namespace.
    pub target_refs: Vec<PolicyTarget>,
    /// How their certificates are checked.
    pub validation: BackendTlsValidation,
    /// Settings of implementations.
    pub options: BTreeMap<String, String>,
}

/// The target of a policy (`LocalPolicyTargetReferenceWithSectionName`,
/// `LocalPolicyTargetReference`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTarget {
    /// Group of the object; empty is the core group.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Restricts the target to the port of this name.
    #[serde(default)]
    pub section_name: Option<String>,
}

/// How certificates of backends are checked (`BackendTLSPolicyValidation`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsValidation {
    /// ConfigMaps or Secrets with `ca.crt`.
    pub ca_certificate_refs: Vec<LocalObject>,
    /// `System`: the CAs of the proxy's machine.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<String>,
    /// The SNI, and the name that the certificate must contain.
    pub hostname: String,
    /// Names of which the certificate must contain one, instead of `hostname`.
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A name in a certificate (`SubjectAltName`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltName {
    /// `Hostname` or `URI`.
    #[serde(rename = "type")]
    pub kind: String,
    /// DNS name, for `type: Hostname`.
    #[serde(default)]
    pub hostname: String,
    /// URI such as a SPIFFE id, for `type: URI`.
    #[serde(default)]
    pub uri: String,
}
