//! What routes do to requests and responses.

use serde::{Deserialize, Serialize};

use super::{BackendObject, LocalObject};

/// One thing done to a request or its response (`HTTPRouteFilter`, `GRPCRouteFilter`). [`kind`](Self::kind) says which of the
/// other fields counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteFilter {
    /// `RequestHeaderModifier`, `ResponseHeaderModifier`, `RequestMirror`, `RequestRedirect`, `URLRewrite`, `CORS`,
    /// `ExternalAuth` or `ExtensionRef`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Headers of the request.
    #[serde(default)]
    pub request_header_modifier: Option<HeaderFilter>,
    /// Headers of the response.
    #[serde(default)]
    pub response_header_modifier: Option<HeaderFilter>,
    /// Where a copy of the request goes.
    #[serde(default)]
    pub request_mirror: Option<MirrorFilter>,
    /// The redirect that answers.
    #[serde(default)]
    pub request_redirect: Option<RedirectFilter>,
    /// Host and path that the backend sees.
    #[serde(default)]
    pub url_rewrite: Option<RewriteFilter>,
    /// What pages of other origins may do.
    #[serde(default)]
    pub cors: Option<CorsFilter>,
    /// Asks a service whether the request may pass. istiod refuses it, whatever it says.
    #[serde(default)]
    pub external_auth: Option<serde_json::Value>,
    /// A filter of an implementation. istiod has none.
    #[serde(default)]
    pub extension_ref: Option<LocalObject>,
}

/// Changes of headers (`HTTPHeaderFilter`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderFilter {
    /// Headers that replace those of their names.
    pub set: Vec<HttpHeader>,
    /// Headers that are added.
    pub add: Vec<HttpHeader>,
    /// Names of headers that are taken away.
    pub remove: Vec<String>,
}

/// Header with the value that it is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpHeader {
    /// Compared without regard to case.
    pub name: String,
    /// Set as it is written.
    pub value: String,
}

/// Where a copy of the request goes (`HTTPRequestMirrorFilter`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorFilter {
    /// Where copies of requests go; responses to them are dropped.
    pub backend_ref: BackendObject,
    /// Per cent of the requests.
    #[serde(default)]
    pub percent: Option<i32>,
    /// The share of the requests, in place of `percent`.
    #[serde(default)]
    pub fraction: Option<Fraction>,
}

/// Share of requests: numerator of denominator, 100 unless given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fraction {
    /// How many,
    pub numerator: i32,
    /// of how many.
    #[serde(default = "hundred")]
    pub denominator: i32,
}

/// A redirect (`HTTPRequestRedirectFilter`). What is absent stays as the request has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedirectFilter {
    /// `http` or `https`; that of the request if absent.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Host of the new location; that of the request if absent.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Path of the new location; that of the request if absent.
    #[serde(default)]
    pub path: Option<PathModifier>,
    /// Port of the new location; by the scheme or the listener if absent.
    #[serde(default)]
    pub port: Option<i32>,
    /// The code of the response.
    #[serde(default = "found")]
    pub status_code: i32,
}

/// What the backend sees in place of what was asked for (`HTTPURLRewriteFilter`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RewriteFilter {
    /// Replaces the request's `Host`.
    pub hostname: Option<String>,
    /// Replaces the request's path, or its prefix.
    pub path: Option<PathModifier>,
}

/// A change of the path (`HTTPPathModifier`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifier {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path in place of all of it.
    #[serde(default)]
    pub replace_full_path: Option<String>,
    /// The path in place of the prefix that matched.
    #[serde(default)]
    pub replace_prefix_match: Option<String>,
}

/// What pages of other origins may do (`HTTPCORSFilter`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorsFilter {
    /// Origins, `*` in a host's first label or as all of it standing for any.
    #[serde(default)]
    pub allow_origins: Vec<String>,
    /// Whether requests may carry credentials.
    #[serde(default)]
    pub allow_credentials: Option<bool>,
    /// Methods, or `*`.
    #[serde(default)]
    pub allow_methods: Vec<String>,
    /// Headers of requests, or `*`.
    #[serde(default)]
    pub allow_headers: Vec<String>,
    /// Headers of responses that pages may read, or `*`.
    #[serde(default)]
    pub expose_headers: Vec<String>,
    /// For how many seconds browsers may keep the answer.
    #[serde(default = "five_seconds")]
    pub max_age: i32,
}

/// What a fraction is of that does not say.
fn hundred() -> i32 {
    100
}

/// The code of a redirect that names none.
fn found() -> i32 {
    302
}

/// How long browsers may keep what a CORS filter says that names no time.
fn five_seconds() -> i32 {
    5
}
