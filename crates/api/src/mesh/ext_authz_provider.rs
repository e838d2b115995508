//! Services that authorize requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// Authorization over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyExternalAuthorizationHttpProvider {
    /// The authorization service, `host` or `namespace/host`.
    pub service: String,
    /// The port of the authorization service.
    pub port: u32,
    /// Timeout of a check; `None` is 600 s.
    pub timeout: Option<Duration>,
    /// The prefix that is added to the path of the checked request.
    pub path_prefix: String,
    /// Whether requests are allowed if the service is unavailable.
    pub fail_open: bool,
    /// Whether the route is selected again after the check changed headers.
    pub clear_route_cache: bool,
    /// The status if the service is unavailable; empty is 403.
    pub status_on_error: String,
    /// Deprecated name of `include_request_headers_in_check`.
    pub include_headers_in_check: Vec<String>,
    /// Request headers that the check includes: exact, `prefix*` or `*suffix`.
    pub include_request_headers_in_check: Vec<String>,
    /// Headers that are added to the check.
    pub include_additional_headers_in_check: BTreeMap<String, String>,
    /// How much of the request body the check contains; `None` is nothing.
    pub include_request_body_in_check: Option<EnvoyExternalAuthorizationRequestBody>,
    /// Headers of the check's response that are forwarded to the application if the request is
    /// allowed.
    pub headers_to_upstream_on_allow: Vec<String>,
    /// Headers of the check's response that are returned to the client if the request is denied.
    pub headers_to_downstream_on_deny: Vec<String>,
    /// Headers of the check's response that are returned to the client if the request is allowed.
    pub headers_to_downstream_on_allow: Vec<String>,
}

/// Authorization over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyExternalAuthorizationGrpcProvider {
    /// The authorization service, `host` or `namespace/host`.
    pub service: String,
    /// The port of the authorization service.
    pub port: u32,
    /// Timeout of a check; `None` is 600 s.
    pub timeout: Option<Duration>,
    /// Whether requests are allowed if the service is unavailable.
    pub fail_open: bool,
    /// Whether the route is selected again after the check changed headers.
    pub clear_route_cache: bool,
    /// The status if the service is unavailable; empty is 403.
    pub status_on_error: String,
    /// How much of the request body the check contains; `None` is nothing.
    pub include_request_body_in_check: Option<EnvoyExternalAuthorizationRequestBody>,
}

/// How much of a request's body a check contains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyExternalAuthorizationRequestBody {
    /// The maximum size of the buffered body, in bytes.
    pub max_request_bytes: u32,
    /// Whether a longer body is truncated instead of rejected.
    pub allow_partial_message: bool,
    /// Whether the body is sent as bytes instead of UTF-8 text; for gRPC requests.
    pub pack_as_bytes: bool,
}
