//! Headers that a proxy adds, changes and hides.

use serde::{Deserialize, Serialize};

use super::proxy_config::ForwardClientCertDetails;
use crate::istio::wire_enum::wire_enum;

/// Headers that a proxy adds, changes and hides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyHeaders {
    /// What becomes of `X-Forwarded-Client-Cert` on a sidecar; `UNDEFINED` is `APPEND_FORWARD`.
    pub forwarded_client_cert: ForwardClientCertDetails,
    /// What it tells of the client's certificate.
    pub set_current_client_cert_details: Option<SetCurrentClientCertDetails>,
    /// `X-Request-Id`.
    pub request_id: Option<RequestId>,
    /// `Server`.
    pub server: Option<ServerHeader>,
    /// `X-Envoy-Attempt-Count`.
    pub attempt_count: Option<AttemptCount>,
    /// The other `X-Envoy-*` headers.
    pub envoy_debug_headers: Option<EnvoyDebugHeaders>,
    /// The headers by which proxies tell each other who they are.
    pub metadata_exchange_headers: Option<MetadataExchangeHeaders>,
    /// Whether HTTP/1.1 headers keep their case; `None` is no.
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
    /// Whether it is not made.
    pub disabled: Option<bool>,
}

/// `X-Envoy-Attempt-Count`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttemptCount {
    /// Whether it is left out.
    pub disabled: Option<bool>,
}

/// `X-Forwarded-Host`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XForwardedHost {
    /// Whether it is added.
    pub enabled: Option<bool>,
}

/// `X-Forwarded-Port`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XForwardedPort {
    /// Whether it is added.
    pub enabled: Option<bool>,
}

/// `X-Envoy-*` headers that tell how a request fared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyDebugHeaders {
    /// Whether they are left out.
    pub disabled: Option<bool>,
}

wire_enum! {
    /// Towards whom proxies tell who they are.
    MetadataExchangeMode {
        /// Everybody.
        Undefined = 0, "UNDEFINED";
        /// Services of the mesh.
        InMesh = 1, "IN_MESH";
    }
}

/// The headers by which proxies tell each other who they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataExchangeHeaders {
    /// Towards whom.
    pub mode: MetadataExchangeMode,
}

/// What `X-Forwarded-Client-Cert` tells of the client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetCurrentClientCertDetails {
    /// The subject; `None` is yes.
    pub subject: Option<bool>,
    /// The certificate as PEM; `None` is no.
    pub cert: Option<bool>,
    /// The whole chain as PEM; `None` is no.
    pub chain: Option<bool>,
    /// The DNS names; `None` is yes.
    pub dns: Option<bool>,
    /// The URI names; `None` is yes.
    pub uri: Option<bool>,
}
