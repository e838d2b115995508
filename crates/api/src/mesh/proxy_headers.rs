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
    /// The certificate details in that header.
    pub set_current_client_cert_details: Option<SetCurrentClientCertDetails>,
    /// Settings of `X-Request-Id`.
    pub request_id: Option<RequestId>,
    /// Settings of `Server`.
    pub server: Option<ServerHeader>,
    /// Settings of `X-Envoy-Attempt-Count`.
    pub attempt_count: Option<AttemptCount>,
    /// Settings of the other `X-Envoy-*` headers.
    pub envoy_debug_headers: Option<EnvoyDebugHeaders>,
    /// Settings of the headers for metadata exchange between proxies.
    pub metadata_exchange_headers: Option<MetadataExchangeHeaders>,
    /// Whether HTTP/1.1 headers keep their case; `None` is false.
    pub preserve_http1_header_case: Option<bool>,
    /// Settings of `X-Forwarded-Host`.
    pub x_forwarded_host: Option<XForwardedHost>,
    /// Settings of `X-Forwarded-Port`.
    pub x_forwarded_port: Option<XForwardedPort>,
}

/// Settings of `Server` in responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerHeader {
    /// Whether the proxy leaves the header to the application.
    pub disabled: Option<bool>,
    /// The value of the header; empty is `istio-envoy`.
    pub value: String,
}

/// Settings of `X-Request-Id`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestId {
    /// Whether the header is not generated.
    pub disabled: Option<bool>,
}

/// Settings of `X-Envoy-Attempt-Count`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttemptCount {
    /// Whether the header is omitted.
    pub disabled: Option<bool>,
}

/// Settings of `X-Forwarded-Host`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XForwardedHost {
    /// Whether the header is added.
    pub enabled: Option<bool>,
}

/// Settings of `X-Forwarded-Port`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XForwardedPort {
    /// Whether the header is added.
    pub enabled: Option<bool>,
}

/// Settings of the `X-Envoy-*` headers with details about the handling of a request.
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

/// Settings of the headers for metadata exchange between proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataExchangeHeaders {
    /// The peers that receive the headers.
    pub mode: MetadataExchangeMode,
}

/// Selects the certificate details in `X-Forwarded-Client-Cert`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetCurrentClientCertDetails {
    /// Whether the subject is included; `None` is true.
    pub subject: Option<bool>,
    /// Whether the certificate is included as PEM; `None` is false.
    pub cert: Option<bool>,
    /// Whether the whole chain is included as PEM; `None` is false.
    pub chain: Option<bool>,
    /// Whether DNS names are included; `None` is true.
    pub dns: Option<bool>,
    /// Whether URI names are included; `None` is true.
    pub uri: Option<bool>,
}
