//! TLS as a client speaks it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;

wire_enum! {
    /// How a client uses TLS.
    ClientTlsMode {
        /// Not at all.
        Disable = 0, "DISABLE";
        /// Checks the server.
        Simple = 1, "SIMPLE";
        /// Checks the server and shows its own certificate.
        Mutual = 2, "MUTUAL";
        /// As `MUTUAL`, with the certificates that the mesh issues.
        IstioMutual = 3, "ISTIO_MUTUAL";
    }
}

/// TLS towards a host.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientTlsSettings {
    /// How TLS is used.
    pub mode: ClientTlsMode,
    /// File of the client certificate; for `MUTUAL`.
    pub client_certificate: String,
    /// File of the client's key; for `MUTUAL`.
    pub private_key: String,
    /// File of the CAs that the server is checked with; empty uses the system's.
    pub ca_certificates: String,
    /// Secret that holds key, certificate and CAs, in place of files.
    pub credential_name: String,
    /// Names of which the server's certificate must hold one.
    pub subject_alt_names: Vec<String>,
    /// The SNI to send.
    pub sni: String,
    /// Whether the server goes unchecked.
    pub insecure_skip_verify: Option<bool>,
    /// File of the list of revoked certificates.
    pub ca_crl: String,
}
