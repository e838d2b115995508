//! Session persistence: how requests of a session reach the same endpoint.

use serde::{Deserialize, Serialize};

/// How requests of a session reach the same endpoint (`SessionPersistence`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionPersistence {
    /// Lifetime of a session, in the Gateway API's duration format.
    pub absolute_timeout: Option<String>,
    /// `Cookie` or `Header`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The cookie with the session.
    pub cookie: Option<CookieConfig>,
    /// The header with the session.
    pub header: Option<HeaderConfig>,
}

/// The cookie of a session (`CookieConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CookieConfig {
    /// Name of the cookie or header; generated if absent.
    pub name: Option<String>,
    /// The path of the cookie.
    pub path: String,
    /// `Session` or `Permanent`.
    pub lifetime_type: String,
}

/// The header of a session (`HeaderConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderConfig {
    /// Name of the cookie or header.
    pub name: String,
}

impl Default for SessionPersistence {
    fn default() -> Self {
        Self { absolute_timeout: None, kind: "Cookie".to_owned(), cookie: None, header: None }
    }
}

impl Default for CookieConfig {
    fn default() -> Self {
        Self { name: None, path: "/".to_owned(), lifetime_type: "Session".to_owned() }
    }
}
