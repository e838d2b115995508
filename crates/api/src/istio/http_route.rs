//! HTTP routes of a VirtualService and what they do to requests.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{Destination, HttpFaultInjection, HttpMatchRequest, Percent, StringMatch};
use crate::duration::Duration;

/// One HTTP route: when it applies, and what becomes of the request.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRoute {
    /// A name for access logs and statistics.
    pub name: String,
    /// When the route applies: one of these must match; empty always applies.
    #[serde(rename = "match")]
    pub matches: Vec<HttpMatchRequest>,
    /// Where the request goes, by weight.
    pub route: Vec<HttpRouteDestination>,
    /// Answers with a redirect; excludes `route`, `direct_response` and `delegate`.
    pub redirect: Option<Box<HttpRedirect>>,
    /// Answers with a fixed response; excludes `route`, `redirect` and `delegate`.
    pub direct_response: Option<Box<HttpDirectResponse>>,
    /// Another VirtualService that holds the routes below this match.
    pub delegate: Option<Box<Delegate>>,
    /// Changes path or authority before forwarding.
    pub rewrite: Option<Box<HttpRewrite>>,
    /// How long the whole request may take, retries included; `None` is no limit.
    pub timeout: Option<Duration>,
    /// When and how often to try again; `None` is the mesh default.
    pub retries: Option<Box<HttpRetry>>,
    /// Faults to inject.
    pub fault: Option<Box<HttpFaultInjection>>,
    /// Where to send a copy of each request; superseded by `mirrors`.
    pub mirror: Option<Destination>,
    /// Where to send copies, each with its share.
    pub mirrors: Vec<HttpMirrorPolicy>,
    /// Share of requests for `mirror` in whole percent; superseded by `mirror_percentage`.
    pub mirror_percent: Option<u32>,
    /// Share of requests for `mirror`; all when unset.
    pub mirror_percentage: Option<Percent>,
    /// The cross-origin policy.
    pub cors_policy: Option<Box<CorsPolicy>>,
    /// Headers to change on requests and responses.
    pub headers: Option<Box<Headers>>,
}

/// Names a VirtualService that holds more routes.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delegate {
    /// The name.
    pub name: String,
    /// The namespace; empty is that of the delegating object.
    pub namespace: String,
}

/// Header changes in both directions.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Headers {
    /// Before the request is forwarded.
    pub request: Option<HeaderOperations>,
    /// Before the response is returned.
    pub response: Option<HeaderOperations>,
}

/// Header changes in one direction.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderOperations {
    /// Headers to overwrite.
    pub set: BTreeMap<String, String>,
    /// Headers to append.
    pub add: BTreeMap<String, String>,
    /// Headers to take away.
    pub remove: Vec<String>,
}

/// One weighted destination of an HTTP route.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteDestination {
    /// The service.
    pub destination: Option<Destination>,
    /// Share of requests relative to the route's other destinations; 0 on the only one means all.
    pub weight: i32,
    /// Headers to change for this destination alone.
    pub headers: Option<Box<Headers>>,
}

wire_enum! {
    /// The port in a redirect, when it is derived.
    RedirectPortSelection {
        /// 80 or 443, as the scheme has it.
        FromProtocolDefault = 0, "FROM_PROTOCOL_DEFAULT";
        /// The port of the request.
        FromRequestPort = 1, "FROM_REQUEST_PORT";
    }
}

/// Answers with a redirect. What is unset stays as in the request.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRedirect {
    /// The new path, wholly.
    pub uri: String,
    /// The new authority.
    pub authority: String,
    /// The new port. At most one of the two ports may be set.
    pub port: Option<u32>,
    /// Where the new port comes from.
    pub derive_port: Option<RedirectPortSelection>,
    /// The new scheme.
    pub scheme: String,
    /// The HTTP status; 0 is 301.
    pub redirect_code: u32,
    /// What replaces the matched prefix of the path.
    pub prefix_rewrite: String,
}

/// Answers with a fixed response.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpDirectResponse {
    /// The HTTP status.
    pub status: u32,
    /// The body; `None` is an empty one.
    pub body: Option<HttpBody>,
}

/// The body of a fixed response.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(try_from = "HttpBodyWire", into = "HttpBodyWire")]
pub enum HttpBody {
    /// Written as `{}`: neither text nor bytes.
    #[default]
    Unset,
    /// A text.
    String(String),
    /// Bytes, base64 on the wire.
    Bytes(Vec<u8>),
}

/// The wire form of [`HttpBody`].
#[derive(Default, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HttpBodyWire {
    /// A text.
    #[serde(skip_serializing_if = "Option::is_none")]
    string: Option<String>,
    /// Bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

impl TryFrom<HttpBodyWire> for HttpBody {
    type Error = String;

    fn try_from(wire: HttpBodyWire) -> Result<Self, Self::Error> {
        match (wire.string, wire.bytes) {
            (None, None) => Ok(Self::Unset),
            (Some(text), None) => Ok(Self::String(text)),
            (None, Some(text)) => {
                BASE64.decode(text).map(Self::Bytes).map_err(|error| format!("bytes must be base64: {error}"))
            }
            (Some(_), Some(_)) => Err("both string and bytes are set; set one".to_owned()),
        }
    }
}

impl From<HttpBody> for HttpBodyWire {
    fn from(body: HttpBody) -> Self {
        match body {
            HttpBody::Unset => Self::default(),
            HttpBody::String(text) => Self { string: Some(text), bytes: None },
            HttpBody::Bytes(bytes) => Self { string: None, bytes: Some(BASE64.encode(bytes)) },
        }
    }
}

/// Changes path or authority before the request is forwarded.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRewrite {
    /// What replaces the path, or its matched prefix.
    pub uri: String,
    /// The new authority.
    pub authority: String,
    /// Rewrites the path by expression; excludes `uri`.
    pub uri_regex_rewrite: Option<RegexRewrite>,
}

/// Rewrites by expression.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegexRewrite {
    /// RE2 expression for the part to replace.
    #[serde(rename = "match")]
    pub matches: String,
    /// The replacement; `\1` and so on stand for captured groups.
    pub rewrite: String,
}

/// When and how often to try a request again.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRetry {
    /// How many more tries; 0 turns retries off.
    pub attempts: i32,
    /// How long each try may take; `None` is the route's timeout.
    pub per_try_timeout: Option<Duration>,
    /// Envoy's retry conditions and status codes, comma separated; empty is Istio's default list.
    pub retry_on: String,
    /// Whether a retry may leave the locality.
    pub retry_remote_localities: Option<bool>,
    /// Whether a retry avoids the hosts tried before; `None` is yes.
    pub retry_ignore_previous_hosts: Option<bool>,
    /// Least wait between tries; `None` is Envoy's 25 ms.
    pub backoff: Option<Duration>,
}

wire_enum! {
    /// What becomes of preflight requests whose origin is not allowed.
    UnmatchedPreflights {
        /// As `FORWARD`.
        Unspecified = 0, "UNSPECIFIED";
        /// They are forwarded.
        Forward = 1, "FORWARD";
        /// They are answered without CORS headers.
        Ignore = 2, "IGNORE";
    }
}

/// The cross-origin resource sharing policy.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CorsPolicy {
    /// Exact origins; superseded by `allow_origins`.
    pub allow_origin: Vec<String>,
    /// Origins that may call; the first that matches decides.
    pub allow_origins: Vec<StringMatch>,
    /// `Access-Control-Allow-Methods`.
    pub allow_methods: Vec<String>,
    /// `Access-Control-Allow-Headers`.
    pub allow_headers: Vec<String>,
    /// `Access-Control-Expose-Headers`.
    pub expose_headers: Vec<String>,
    /// `Access-Control-Max-Age`.
    pub max_age: Option<Duration>,
    /// `Access-Control-Allow-Credentials`.
    pub allow_credentials: Option<bool>,
    /// What becomes of preflight requests whose origin is not allowed.
    pub unmatched_preflights: UnmatchedPreflights,
}

/// One place that gets a copy of requests.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMirrorPolicy {
    /// The service.
    pub destination: Option<Destination>,
    /// Share of requests; all when unset.
    pub percentage: Option<Percent>,
}
