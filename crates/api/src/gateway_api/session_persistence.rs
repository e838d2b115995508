//! Session persistence: how requests of a session reach the same endpoint. Read, but not
//! translated: istiod does not support it.

use serde::{Deserialize, Serialize};

/// How requests of a session reach the same endpoint (`SessionPersistence` of Gateway API v1.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionPersistence {
    /// Name of the cookie or header; generated if absent.
    pub session_name: Option<String>,
    /// Lifetime of a session, in the Gateway API's duration format.
    pub absolute_timeout: Option<String>,
    /// `Cookie` or `Header`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Further settings for the type `Cookie`.
    pub cookie_config: Option<CookieConfig>,
}

/// The cookie of a session (`CookieConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CookieConfig {
    /// `Session`: clients delete the cookie when their session ends. `Permanent`: they keep it for
    /// `absoluteTimeout`.
    pub lifetime_type: String,
}

impl Default for SessionPersistence {
    fn default() -> Self {
        Self {
            session_name: None,
            absolute_timeout: None,
            kind: "Cookie".to_owned(),
            cookie_config: None,
        }
    }
}

impl Default for CookieConfig {
    fn default() -> Self {
        Self {
            lifetime_type: "Session".to_owned(),
        }
    }
}
