//! Filters of routes.

use serde::{Deserialize, Serialize};

use super::{BackendObject, LocalObject};

/// A filter for a request or its response (`HTTPRouteFilter`, `GRPCRouteFilter`).
/// [`kind`](Self::kind) selects the field that is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteFilter {
    /// `RequestHeaderModifier`, `ResponseHeaderModifier`, `RequestMirror`, `RequestRedirect`,
    /// `URLRewrite`, `CORS`, `ExternalAuth` or `ExtensionRef`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Changes request headers.
    #[serde(default)]
    pub request_header_modifier: Option<HeaderFilter>,
    /// Changes response headers.
    #[serde(default)]
    pub response_header_modifier: Option<HeaderFilter>,
    /// Sends copies of requests to another backend.
    #[serde(default)]
    pub request_mirror: Option<MirrorFilter>,
    /// Responds with a redirect.
    #[serde(default)]
    pub request_redirect: Option<RedirectFilter>,
    /// Rewrites host and path for the backend.
    #[serde(default)]
    pub url_rewrite: Option<RewriteFilter>,
    /// The CORS policy.
    #[serde(default)]
    pub cors: Option<CorsFilter>,
    /// External authorization. istiod rejects it, regardless of its content.
    #[serde(default)]
    pub external_auth: Option<serde_json::Value>,
    /// A filter of an implementation. istiod supports none.
    #[serde(default)]
    pub extension_ref: Option<LocalObject>,
}

/// Changes of headers (`HTTPHeaderFilter`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderFilter {
    /// Headers whose values are replaced, or added if they are absent; of equal names the first
    /// counts.
    pub set: Vec<HttpHeader>,
    /// Headers whose values are added to those that exist; of equal names the first counts.
    pub add: Vec<HttpHeader>,
    /// Names of headers to remove.
    pub remove: Vec<String>,
}

/// A header with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpHeader {
    /// The name; case-insensitive.
    pub name: String,
    /// The value, set as it is written.
    pub value: String,
}

/// The target of mirrored requests (`HTTPRequestMirrorFilter`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorFilter {
    /// Where copies of requests go; responses to them are dropped.
    pub backend_ref: BackendObject,
    /// Percentage of the requests that are mirrored.
    #[serde(default)]
    pub percent: Option<i32>,
    /// Fraction of the requests that are mirrored, instead of `percent`.
    #[serde(default)]
    pub fraction: Option<Fraction>,
}

/// A fraction of requests; the default denominator is 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fraction {
    /// Mirrored requests of each `denominator` requests.
    pub numerator: i32,
    /// Requests that `numerator` is a part of; default 100.
    #[serde(default = "hundred")]
    pub denominator: i32,
}

/// A redirect (`HTTPRequestRedirectFilter`). Unset fields keep the value of the request.
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
    /// The status code of the response.
    #[serde(default = "found")]
    pub status_code: i32,
}

/// Rewrites of the request for the backend (`HTTPURLRewriteFilter`).
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
    /// Replacement for the whole path.
    #[serde(default)]
    pub replace_full_path: Option<String>,
    /// Replacement for the matched prefix.
    #[serde(default)]
    pub replace_prefix_match: Option<String>,
}

/// The CORS policy (`HTTPCORSFilter`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorsFilter {
    /// Allowed origins; `*` as the first label of a host, or as the whole origin, matches any.
    #[serde(default)]
    pub allow_origins: Vec<String>,
    /// Whether requests may contain credentials.
    #[serde(default)]
    pub allow_credentials: Option<bool>,
    /// Allowed methods, or `*`.
    #[serde(default)]
    pub allow_methods: Vec<String>,
    /// Allowed request headers, or `*`.
    #[serde(default)]
    pub allow_headers: Vec<String>,
    /// Response headers that pages may read, or `*`.
    #[serde(default)]
    pub expose_headers: Vec<String>,
    /// How many seconds browsers may cache the response.
    #[serde(default = "five_seconds")]
    pub max_age: i32,
}

/// The default denominator of a fraction.
fn hundred() -> i32 {
    100
}

/// The default status code of a redirect.
fn found() -> i32 {
    302
}

/// The default maximum age of a CORS policy, in seconds.
fn five_seconds() -> i32 {
    5
}
