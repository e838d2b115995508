//! Services that decide whether a request is let in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// Authorization over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyExternalAuthorizationHttpProvider {
    /// The service, `host` or `namespace/host`.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// How long a decision may take; `None` is 600 s.
    pub timeout: Option<Duration>,
    /// What is put before the path of the request in question.
    pub path_prefix: String,
    /// Whether requests pass while the service cannot be asked.
    pub fail_open: bool,
    /// Whether the route is selected again after the decision changed headers.
    pub clear_route_cache: bool,
    /// The status when the service cannot be asked; empty is 403.
    pub status_on_error: String,
    /// The old name of `include_request_headers_in_check`.
    pub include_headers_in_check: Vec<String>,
    /// Headers of the request that are shown: exact, `prefix*` or `*suffix`.
    pub include_request_headers_in_check: Vec<String>,
    /// Headers that are added to the question.
    pub include_additional_headers_in_check: BTreeMap<String, String>,
    /// How much of the body is shown; `None` is nothing.
    pub include_request_body_in_check: Option<EnvoyExternalAuthorizationRequestBody>,
    /// Headers of the decision that go on to the application when it says yes.
    pub headers_to_upstream_on_allow: Vec<String>,
    /// Headers of the decision that go back to the client when it says no.
    pub headers_to_downstream_on_deny: Vec<String>,
    /// Headers of the decision that go back to the client when it says yes.
    pub headers_to_downstream_on_allow: Vec<String>,
}

/// Authorization over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyExternalAuthorizationGrpcProvider {
    /// The service, `host` or `namespace/host`.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// How long a decision may take; `None` is 600 s.
    pub timeout: Option<Duration>,
    /// Whether requests pass while the service cannot be asked.
    pub fail_open: bool,
    /// Whether the route is selected again after the decision changed headers.
    pub clear_route_cache: bool,
    /// The status when the service cannot be asked; empty is 403.
    pub status_on_error: String,
    /// How much of the body is shown; `None` is nothing.
    pub include_request_body_in_check: Option<EnvoyExternalAuthorizationRequestBody>,
}

/// How much of a request's body is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyExternalAuthorizationRequestBody {
    /// The most that is held back for it.
    pub max_request_bytes: u32,
    /// Whether a longer body is cut rather than refused.
    pub allow_partial_message: bool,
    /// Whether it is sent as bytes rather than UTF-8 text; for gRPC.
    pub pack_as_bytes: bool,
}
