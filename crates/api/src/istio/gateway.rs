//! Gateway: what a standalone proxy listens to.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;

/// `networking.istio.io/Gateway`: ports that gateway workloads open, and for which hosts.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// What is listened to.
    pub servers: Vec<Server>,
    /// Labels of the workloads that open these ports.
    pub selector: BTreeMap<String, String>,
}

/// One port and the hosts served on it.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Server {
    /// The port.
    pub port: Option<Port>,
    /// IP, or `unix://` path, to listen on; empty is all addresses.
    pub bind: String,
    /// Hosts as `namespace/host` or `host`; the namespace is that of the VirtualService, `.` this object's, `*` any.
    pub hosts: Vec<String>,
    /// TLS on the port.
    pub tls: Option<ServerTlsSettings>,
    /// Where traffic goes by default. Read by nothing.
    pub default_endpoint: String,
    /// A name for the server; unique among the gateways of a workload.
    pub name: String,
}

/// A port with its protocol.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// The number.
    pub number: u32,
    /// `HTTP`, `HTTPS`, `GRPC`, `GRPC-WEB`, `HTTP2`, `MONGO`, `TCP` or `TLS`.
    pub protocol: String,
    /// A name for the port.
    pub name: String,
    /// The port of the workload; superseded, read by nothing.
    pub target_port: u32,
}

wire_enum! {
    /// How a server uses TLS.
    ServerTlsMode {
        /// Passes TLS on by SNI, unopened, to where VirtualServices say.
        Passthrough = 0, "PASSTHROUGH";
        /// Ends TLS.
        Simple = 1, "SIMPLE";
        /// Ends TLS and demands a client certificate.
        Mutual = 2, "MUTUAL";
        /// Passes TLS on by SNI to the service and subset that the SNI itself names.
        AutoPassthrough = 3, "AUTO_PASSTHROUGH";
        /// As `MUTUAL`, with the certificates that the mesh issues.
        IstioMutual = 4, "ISTIO_MUTUAL";
        /// Ends TLS and asks for a client certificate, but goes on without one.
        OptionalMutual = 5, "OPTIONAL_MUTUAL";
    }
}

wire_enum! {
    /// A TLS version.
    TlsProtocol {
        /// Envoy's choice.
        TlsAuto = 0, "TLS_AUTO";
        /// TLS 1.0.
        Tlsv1_0 = 1, "TLSV1_0";
        /// TLS 1.1.
        Tlsv1_1 = 2, "TLSV1_1";
        /// TLS 1.2.
        Tlsv1_2 = 3, "TLSV1_2";
        /// TLS 1.3.
        Tlsv1_3 = 4, "TLSV1_3";
    }
}

/// TLS as a server speaks it.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerTlsSettings {
    /// Whether plain HTTP is answered with a redirect to HTTPS.
    pub https_redirect: bool,
    /// How TLS is used.
    pub mode: ServerTlsMode,
    /// File of the certificate.
    pub server_certificate: String,
    /// File of the key.
    pub private_key: String,
    /// File of the CAs that clients are checked with.
    pub ca_certificates: String,
    /// File of the list of revoked client certificates.
    pub ca_crl: String,
    /// Secret that holds key, certificate and CAs, in place of files.
    pub credential_name: String,
    /// Secrets, one per kind of key (RSA and ECDSA), in place of one.
    pub credential_names: Vec<String>,
    /// Secret or ConfigMap that holds the CAs alone.
    pub ca_cert_credential_name: String,
    /// Files of certificates, one per kind of key, in place of one.
    pub tls_certificates: Vec<TlsCertificate>,
    /// Names of which a client's certificate must hold one.
    pub subject_alt_names: Vec<String>,
    /// Base64 SHA-256 hashes of which one must be that of the client certificate's public key.
    pub verify_certificate_spki: Vec<String>,
    /// Hex SHA-256 hashes of which one must be that of the client certificate.
    pub verify_certificate_hash: Vec<String>,
    /// The oldest TLS version.
    pub min_protocol_version: TlsProtocol,
    /// The newest TLS version.
    pub max_protocol_version: TlsProtocol,
    /// Cipher suites, in Envoy's names; empty is Envoy's choice.
    pub cipher_suites: Vec<String>,
    /// Curves for the key exchange, in Envoy's names; empty is the mesh's choice.
    pub ecdh_curves: Vec<String>,
    /// Whether client certificates go unchecked.
    pub insecure_skip_verify: Option<bool>,
}

/// Files of one certificate.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsCertificate {
    /// File of the certificate.
    pub server_certificate: String,
    /// File of the key.
    pub private_key: String,
    /// File of the CAs that clients are checked with.
    pub ca_certificates: String,
}
