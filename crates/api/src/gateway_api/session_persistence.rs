//! How requests of a session find the same endpoint.

use serde::{Deserialize, Serialize};

/// How requests of a session find the same endpoint (`SessionPersistence`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionPersistence {
    /// How long a session lasts, as the Gateway API writes durations.
    pub absolute_timeout: Option<String>,
    /// `Cookie` or `Header`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The cookie that carries it.
    pub cookie: Option<CookieConfig>,
    /// The header that carries it.
    pub header: Option<HeaderConfig>,
}

/// The cookie of a session (`CookieConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CookieConfig {
    /// Name of the cookie or header; generated if absent.
    pub name: Option<String>,
    /// For which paths it is sent.
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
