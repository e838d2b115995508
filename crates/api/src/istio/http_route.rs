//! HTTP routes of a VirtualService and their actions on requests.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{Destination, HttpFaultInjection, HttpMatchRequest, Percent, StringMatch};
use crate::duration::Duration;
use navarch_base::base64_text;

/// One HTTP route: the requests that it matches, and its action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRoute {
    /// The route's name in access logs and statistics.
    pub name: String,
    /// Match conditions, of which one must match; empty matches all requests.
    #[serde(rename = "match")]
    pub matches: Vec<HttpMatchRequest>,
    /// Weighted destinations of the request.
    pub route: Vec<HttpRouteDestination>,
    /// Answers with a redirect; mutually exclusive with `route`, `direct_response` and `delegate`.
    pub redirect: Option<Box<HttpRedirect>>,
    /// Answers with a fixed response; mutually exclusive with `route`, `redirect` and `delegate`.
    pub direct_response: Option<Box<HttpDirectResponse>>,
    /// Another VirtualService that contains the routes for requests that match.
    pub delegate: Option<Box<Delegate>>,
    /// Rewrites path or authority before forwarding.
    pub rewrite: Option<Box<HttpRewrite>>,
    /// Timeout of the whole request, including retries; unset disables the timeout.
    pub timeout: Option<Duration>,
    /// When and how often Envoy retries the request; unset means the mesh default.
    pub retries: Option<Box<HttpRetry>>,
    /// Faults that Envoy injects.
    pub fault: Option<Box<HttpFaultInjection>>,
    /// Destination of a copy of each request; deprecated in favor of `mirrors`.
    pub mirror: Option<Destination>,
    /// Destinations of copies, each with its percentage of requests.
    pub mirrors: Vec<HttpMirrorPolicy>,
    /// Percentage of requests copied to `mirror`, as an integer; deprecated in favor of
    /// `mirror_percentage`.
    pub mirror_percent: Option<u32>,
    /// Percentage of requests copied to `mirror`; unset copies all.
    pub mirror_percentage: Option<Percent>,
    /// The cross-origin resource sharing policy.
    pub cors_policy: Option<Box<CorsPolicy>>,
    /// Headers to change on requests and responses.
    pub headers: Option<Box<Headers>>,
}

/// References a VirtualService that contains more routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Delegate {
    /// The VirtualService's name.
    pub name: String,
    /// The VirtualService's namespace; empty is the namespace of the delegating VirtualService.
    pub namespace: String,
}

/// Header changes on requests and responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Headers {
    /// Changes before the request is forwarded.
    pub request: Option<HeaderOperations>,
    /// Changes before the response is returned.
    pub response: Option<HeaderOperations>,
}

/// Header changes in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderOperations {
    /// Headers to overwrite.
    pub set: BTreeMap<String, String>,
    /// Headers to append.
    pub add: BTreeMap<String, String>,
    /// Headers to remove.
    pub remove: Vec<String>,
}

/// One weighted destination of an HTTP route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteDestination {
    /// The service, or the subset of a service, that receives the requests.
    pub destination: Option<Destination>,
    /// Weight relative to the route's other destinations; 0 on the only destination sends it all
    /// requests.
    pub weight: i32,
    /// Header changes for this destination only.
    pub headers: Option<Box<Headers>>,
}

wire_enum! {
    /// The source of the port in a redirect.
    RedirectPortSelection {
        /// 80 or 443, depending on the scheme.
        FromProtocolDefault = 0, "FROM_PROTOCOL_DEFAULT";
        /// The port of the request.
        FromRequestPort = 1, "FROM_REQUEST_PORT";
    }
}

/// Answers with a redirect. Unset fields keep the value of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRedirect {
    /// The new path; replaces the whole path.
    pub uri: String,
    /// The new authority (Host header).
    pub authority: String,
    /// The new port. Mutually exclusive with `derive_port`.
    pub port: Option<u32>,
    /// The source of the new port.
    pub derive_port: Option<RedirectPortSelection>,
    /// The new URI scheme, such as `https`.
    pub scheme: String,
    /// The HTTP status; 0 is 301.
    pub redirect_code: u32,
    /// Replacement for the matched prefix of the path.
    pub prefix_rewrite: String,
}

/// Answers with a fixed response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpDirectResponse {
    /// The HTTP status code of the response.
    pub status: u32,
    /// The body; unset sends an empty body.
    pub body: Option<HttpBody>,
}

/// The body of a fixed response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "HttpBodyWire", into = "HttpBodyWire")]
pub enum HttpBody {
    /// Written as `{}`: neither text nor bytes.
    #[default]
    Unset,
    /// Body as text.
    String(String),
    /// Body as bytes, base64 on the wire.
    Bytes(Vec<u8>),
}

/// The wire form of [`HttpBody`].
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
struct HttpBodyWire {
    /// Body as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    string: Option<String>,
    /// Body as base64-encoded bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

impl TryFrom<HttpBodyWire> for HttpBody {
    type Error = String;

    fn try_from(wire: HttpBodyWire) -> Result<Self, Self::Error> {
        match (wire.string, wire.bytes) {
            (None, None) => Ok(Self::Unset),
            (Some(text), None) => Ok(Self::String(text)),
            (None, Some(text)) => base64_text::decode(&text)
                .map(Self::Bytes)
                .map_err(|error| format!("bytes must be base64: {error}")),
            (Some(_), Some(_)) => Err("both string and bytes are set; set one".to_owned()),
        }
    }
}

impl From<HttpBody> for HttpBodyWire {
    fn from(body: HttpBody) -> Self {
        match body {
            HttpBody::Unset => Self::default(),
            HttpBody::String(text) => Self {
                string: Some(text),
                bytes: None,
            },
            HttpBody::Bytes(bytes) => Self {
                string: None,
                bytes: Some(BASE64.encode(bytes)),
            },
        }
    }
}

/// Rewrites path or authority before the request is forwarded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRewrite {
    /// Replacement for the path, or for its matched prefix.
    pub uri: String,
    /// The new authority (Host header).
    pub authority: String,
    /// Rewrites the path by regular expression; mutually exclusive with `uri`.
    pub uri_regex_rewrite: Option<RegexRewrite>,
}

/// Rewrites a path by regular expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RegexRewrite {
    /// RE2 expression that matches the part to replace.
    #[serde(rename = "match")]
    pub matches: String,
    /// The replacement; `\1` and so on refer to capture groups.
    pub rewrite: String,
}

/// When and how often Envoy retries a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRetry {
    /// Maximum number of retries; 0 disables retries.
    pub attempts: i32,
    /// Timeout of each attempt; unset means the route's timeout.
    pub per_try_timeout: Option<Duration>,
    /// Envoy's retry conditions and status codes, comma separated; empty is Istio's default list.
    pub retry_on: String,
    /// Whether a retry may select an endpoint of another locality.
    pub retry_remote_localities: Option<bool>,
    /// Whether a retry avoids the hosts of earlier attempts; unset means true.
    pub retry_ignore_previous_hosts: Option<bool>,
    /// Minimum interval between attempts; unset means Envoy's 25 ms.
    pub backoff: Option<Duration>,
}

wire_enum! {
    /// Handling of preflight requests whose origin is not allowed.
    UnmatchedPreflights {
        /// Like `FORWARD`.
        Unspecified = 0, "UNSPECIFIED";
        /// Envoy forwards the requests.
        Forward = 1, "FORWARD";
        /// Envoy answers the requests without CORS headers.
        Ignore = 2, "IGNORE";
    }
}

/// The cross-origin resource sharing policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CorsPolicy {
    /// Allowed origins as exact strings; deprecated in favor of `allow_origins`.
    pub allow_origin: Vec<String>,
    /// Allowed origins; the first match decides.
    pub allow_origins: Vec<StringMatch>,
    /// Value of `Access-Control-Allow-Methods`.
    pub allow_methods: Vec<String>,
    /// Value of `Access-Control-Allow-Headers`.
    pub allow_headers: Vec<String>,
    /// Value of `Access-Control-Expose-Headers`.
    pub expose_headers: Vec<String>,
    /// Value of `Access-Control-Max-Age`.
    pub max_age: Option<Duration>,
    /// Value of `Access-Control-Allow-Credentials`.
    pub allow_credentials: Option<bool>,
    /// Handling of preflight requests whose origin is not allowed.
    pub unmatched_preflights: UnmatchedPreflights,
}

/// One destination that receives copies of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMirrorPolicy {
    /// The service that receives the copies.
    pub destination: Option<Destination>,
    /// Percentage of requests that are copied; unset copies all.
    pub percentage: Option<Percent>,
}
