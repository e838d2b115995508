//! Gateway: the listeners of a standalone proxy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;

/// `networking.istio.io/Gateway`: ports that gateway workloads open, and the hosts on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// The ports and their hosts.
    pub servers: Vec<Server>,
    /// Labels of the workloads that open these ports.
    pub selector: BTreeMap<String, String>,
}

/// One port and the hosts that it serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Server {
    /// The port that the gateway opens.
    pub port: Option<Port>,
    /// IP or `unix://` path that the listener binds to; empty binds to all addresses.
    pub bind: String,
    /// Hosts as `namespace/host` or `host`; the namespace is the VirtualService's, `.` is the
    /// Gateway's own, `*` any.
    pub hosts: Vec<String>,
    /// TLS settings of the port.
    pub tls: Option<ServerTlsSettings>,
    /// Default target of the traffic. Ignored.
    pub default_endpoint: String,
    /// The server's name; unique among the Gateways of a workload.
    pub name: String,
}

/// A port with its protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// The port number.
    pub number: u32,
    /// `HTTP`, `HTTPS`, `GRPC`, `GRPC-WEB`, `HTTP2`, `MONGO`, `TCP` or `TLS`.
    pub protocol: String,
    /// A name for the port.
    pub name: String,
    /// The workload's port; deprecated and ignored.
    pub target_port: u32,
}

wire_enum! {
    /// How a server uses TLS.
    ServerTlsMode {
        /// Forwards TLS without termination, by SNI, to the destination of the matching
        /// VirtualService.
        Passthrough = 0, "PASSTHROUGH";
        /// Terminates TLS.
        Simple = 1, "SIMPLE";
        /// Terminates TLS and requires a client certificate.
        Mutual = 2, "MUTUAL";
        /// Forwards TLS without termination to the service and subset that the SNI encodes.
        AutoPassthrough = 3, "AUTO_PASSTHROUGH";
        /// Like `MUTUAL`, with the workload certificate that the mesh issues.
        IstioMutual = 4, "ISTIO_MUTUAL";
        /// Terminates TLS and requests a client certificate, but accepts clients without a
        /// certificate.
        OptionalMutual = 5, "OPTIONAL_MUTUAL";
    }
}

wire_enum! {
    /// A TLS version.
    TlsProtocol {
        /// Envoy's default version.
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

/// TLS settings of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServerTlsSettings {
    /// Whether the gateway answers plain HTTP with a redirect to HTTPS.
    pub https_redirect: bool,
    /// The TLS mode.
    pub mode: ServerTlsMode,
    /// File of the server certificate.
    pub server_certificate: String,
    /// File of the server's private key.
    pub private_key: String,
    /// File of the CA certificates that verify clients.
    pub ca_certificates: String,
    /// File of the certificate revocation list for client certificates.
    pub ca_crl: String,
    /// Secret with key, certificate and CA certificates, instead of files.
    pub credential_name: String,
    /// Secrets, one per key type (RSA and ECDSA), instead of `credential_name`.
    pub credential_names: Vec<String>,
    /// Secret or ConfigMap with CA certificates only.
    pub ca_cert_credential_name: String,
    /// Certificate files, one entry per key type, instead of `server_certificate` and
    /// `private_key`.
    pub tls_certificates: Vec<TlsCertificate>,
    /// Accepted subject alternative names; the client's certificate must contain one of them.
    pub subject_alt_names: Vec<String>,
    /// Base64 SHA-256 hashes; the public key of the client's certificate must match one of them.
    pub verify_certificate_spki: Vec<String>,
    /// Hex SHA-256 hashes; the client's certificate must match one of them.
    pub verify_certificate_hash: Vec<String>,
    /// The minimum TLS version.
    pub min_protocol_version: TlsProtocol,
    /// The maximum TLS version.
    pub max_protocol_version: TlsProtocol,
    /// Cipher suites, in Envoy's names; empty is Envoy's default.
    pub cipher_suites: Vec<String>,
    /// Curves for the key exchange, in Envoy's names; empty is the mesh's default.
    pub ecdh_curves: Vec<String>,
    /// Whether the server skips verification of client certificates.
    pub insecure_skip_verify: Option<bool>,
    /// ALPN protocols that the server offers, instead of `h2` and `http/1.1`. HTTP/3 is not affected.
    pub alpn_protocols: Vec<String>,
}

/// Files of one server certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TlsCertificate {
    /// File of the server certificate.
    pub server_certificate: String,
    /// File of the server's private key.
    pub private_key: String,
    /// File of the CA certificates that verify clients.
    pub ca_certificates: String,
}
