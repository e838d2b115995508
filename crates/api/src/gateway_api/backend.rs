//! XBackend.

use serde::{Deserialize, Serialize};

use super::{BackendTlsValidation, CertificateRef};

/// `gateway.networking.x-k8s.io/XBackend`: a backend outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XBackend {
    /// `ExternalHostname`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Port that proxies connect to.
    pub port: BackendPort,
    /// DNS name that proxies resolve, for `type: ExternalHostname`.
    pub external_hostname: Option<ExternalHostname>,
    /// `HTTP`, `HTTP2`, `H2C`, `GRPC`, `TCP` or the name of another.
    pub protocol: Option<String>,
    /// TLS settings for connections to it.
    pub tls: Option<BackendTls>,
}

/// Like a port of an EndpointSlice; an XBackend has exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendPort {
    /// A DNS label or empty. Routes select the port by its number.
    pub name: Option<String>,
    /// 1 to 65535.
    pub port: i32,
}

/// A host outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalHostname {
    /// DNS name without wildcard.
    pub hostname: String,
}

/// TLS settings for connections to a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTls {
    /// `None`, `ServerOnly` or `ClientAndServer`.
    pub mode: String,
    /// The certificate that the client presents.
    pub client_certificate_ref: Option<CertificateRef>,
    /// How the backend's certificate is checked.
    pub validation: BackendTlsValidation,
}
