//! Headers that a proxy adds, changes and removes.

use serde::{Deserialize, Serialize};

use super::proxy_config::ForwardClientCertDetails;
use crate::istio::wire_enum::wire_enum;

/// Headers that a proxy adds, changes and removes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyHeaders {
    /// The handling of `X-Forwarded-Client-Cert` on a sidecar; `UNDEFINED` is `APPEND_FORWARD`.
    pub forwarded_client_cert: ForwardClientCertDetails,
    /// The details of the client's certificate in that header.
    pub set_current_client_cert_details: Option<SetCurrentClientCertDetails>,
    /// `X-Request-Id`.
    pub request_id: Option<RequestId>,
    /// `Server`.
    pub server: Option<ServerHeader>,
    /// `X-Envoy-Attempt-Count`.
    pub attempt_count: Option<AttemptCount>,
    /// The other `X-Envoy-*` headers.
    pub envoy_debug_headers: Option<EnvoyDebugHeaders>,
    /// The headers with which proxies exchange workload metadata.
    pub metadata_exchange_headers: Option<MetadataExchangeHeaders>,
    /// Whether HTTP/1.1 headers keep their case; `None` is false.
    pub preserve_http1_header_case: Option<bool>,
    /// `X-Forwarded-Host`.
    pub x_forwarded_host: Option<XForwardedHost>,
    /// `X-Forwarded-Port`.
    pub x_forwarded_port: Option<XForwardedPort>,
}

/// `Server` in responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerHeader {
    /// Whether the proxy leaves the header to the application.
    pub disabled: Option<bool>,
    /// Its value; empty is `istio-envoy`.
    pub value: String,
}

/// `X-Request-Id`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestId {
    /// Whether the header is not generated.
    pub disabled: Option<bool>,
}

/// `X-Envoy-Attempt-Count`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttemptCount {
    /// Whether the header is omitted.
    pub disabled: Option<bool>,
}

/// `X-Forwarded-Host`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XForwardedHost {
    /// Whether the header is added.
    pub enabled: Option<bool>,
}

/// `X-Forwarded-Port`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XForwardedPort {
    /// Whether the header is added.
    pub enabled: Option<bool>,
}

/// `X-Envoy-*` headers with details about the handling of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyDebugHeaders {
    /// Whether the headers are omitted.
    pub disabled: Option<bool>,
}

wire_enum! {
    /// The peers that proxies send workload metadata to.
    MetadataExchangeMode {
        /// All peers.
        Undefined = 0, "UNDEFINED";
        /// Services of the mesh.
        InMesh = 1, "IN_MESH";
    }
}

/// The headers with which proxies exchange workload metadata.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataExchangeHeaders {
    /// The peers that receive the headers.
    pub mode: MetadataExchangeMode,
}

/// The details of the client's certificate in `X-Forwarded-Client-Cert`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetCurrentClientCertDetails {
    /// The subject; `None` is true.
    pub subject: Option<bool>,
    /// The certificate as PEM; `None` is false.
    pub cert: Option<bool>,
    /// The whole chain as PEM; `None` is false.
    pub chain: Option<bool>,
    /// The DNS names; `None` is true.
    pub dns: Option<bool>,
    /// The URI names; `None` is true.
    pub uri: Option<bool>,
}
