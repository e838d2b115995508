//! TLS settings of a client.

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;

wire_enum! {
    /// How a client uses TLS.
    ClientTlsMode {
        /// Connects in plain text.
        Disable = 0, "DISABLE";
        /// Verifies the server's certificate.
        Simple = 1, "SIMPLE";
        /// Verifies the server's certificate and presents a client certificate.
        Mutual = 2, "MUTUAL";
        /// Like `MUTUAL`, with the workload certificate that the mesh issues.
        IstioMutual = 3, "ISTIO_MUTUAL";
    }
}

/// TLS settings for connections to a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClientTlsSettings {
    /// The TLS mode.
    pub mode: ClientTlsMode,
    /// File of the client certificate; required for `MUTUAL`.
    pub client_certificate: String,
    /// File of the client's private key; required for `MUTUAL`.
    pub private_key: String,
    /// File of the CA certificates that verify the server; empty uses the system's.
    pub ca_certificates: String,
    /// Secret with key, certificate and CA certificates, instead of files.
    pub credential_name: String,
    /// Secret or ConfigMap with CA certificates only, instead of those of `credential_name` or
    /// `ca_certificates`. Sidecars use a Secret if the rule selects workloads, else the files.
    pub ca_cert_credential_name: String,
    /// Accepted subject alternative names; the server's certificate must contain one of them.
    pub subject_alt_names: Vec<String>,
    /// The SNI that the client sends.
    pub sni: String,
    /// Whether the client skips verification of the server's certificate.
    pub insecure_skip_verify: Option<bool>,
    /// File of the certificate revocation list.
    pub ca_crl: String,
}
