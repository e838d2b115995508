//! The keys of a token issuer: configured, or fetched and cached.

mod fetch;

use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::jwt::JwtRule;

/// How long fetched keys are used before they are fetched again.
const FRESH: Duration = Duration::from_secs(20 * 60);
/// Delay before keys are fetched again because a key is missing or the last fetch failed.
const REFETCH_DELAY: Duration = Duration::from_secs(15);
/// How long fetched keys are used if they cannot be fetched again.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// The reason for rejection if no key of the issuer can be that of a token.
const UNKNOWN_KEY: &str = "its key is not one of the issuer's";

#[derive(Debug)]
pub(super) enum KeySource {
    /// The keys are configured.
    Fixed(JwkSet),
    /// The keys are fetched.
    Remote(Box<Remote>),
}

/// Keys that are fetched and cached.
#[derive(Debug)]
pub(super) struct Remote {
    /// The address of the keys; if empty, it is in the issuer's discovery document.
    uri: String,
    issuer: String,
    /// The cached keys. Locked while fetching, so that concurrent callers cause one fetch.
    state: Mutex<Fetched>,
}

/// The cached keys.
#[derive(Debug, Default)]
struct Fetched {
    /// The keys, and when they were fetched.
    keys: Option<(JwkSet, Instant)>,
    /// When the last fetch began.
    requested_at: Option<Instant>,
}

/// The discovery document of an issuer.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    /// The address of the keys.
    jwks_uri: String,
}

/// A key set as it is sent.
#[derive(Deserialize)]
struct SentKeys {
    keys: Vec<serde_json::Value>,
}

impl KeySource {
    /// The key source of a rule.
    ///
    /// # Errors
    /// If configured keys are invalid.
    pub(super) fn new(rule: &JwtRule) -> Result<Self, String> {
        if !rule.jwks.is_empty() {
            let keys = read_keys(rule.jwks.as_bytes())
                .map_err(|error| format!("JWT_RULE: jwks: {error}"))?;
            return Ok(Self::Fixed(keys));
        }
        let remote = Remote {
            uri: rule.jwks_uri.clone(),
            issuer: rule.issuer.clone(),
            state: Mutex::default(),
        };
        Ok(Self::Remote(Box::new(remote)))
    }

    /// The keys that a token may be signed with, at least one: all with its key ID, or all if it
    /// has none. Issuers may give one ID to several keys (RFC 7517, section 4.5), and go-oidc, which
    /// istiod uses, tries each.
    ///
    /// # Errors
    /// If there is no such key, or the keys cannot be fetched: the token is rejected.
    pub(super) async fn candidates(&self, id: Option<&str>) -> Result<Vec<Jwk>, String> {
        match self {
            Self::Fixed(keys) => matching(keys, id).ok_or_else(|| UNKNOWN_KEY.to_owned()),
            Self::Remote(remote) => remote.candidates(id).await,
        }
    }
}

/// Reads a key set. Keys that cannot be read are left out (RFC 7517, section 5), so that a new kind
/// of key does not disable those beside it.
///
/// # Errors
/// If it is no key set, or has only keys that cannot be read.
fn read_keys(json: &[u8]) -> Result<JwkSet, String> {
    let sent: SentKeys = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let count = sent.keys.len();
    let keys: Vec<Jwk> = sent
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value(key).ok())
        .collect();

    let unreadable = count - keys.len();
    if unreadable > 0 && keys.is_empty() {
        return Err(format!("none of its {count} keys can be read"));
    }
    if unreadable > 0 {
        tracing::warn!(unreadable, count, "left out keys of the token issuer");
    }
    Ok(JwkSet { keys })
}

/// All keys with this ID, or all if there is no ID; `None` if there are none.
fn matching(keys: &JwkSet, id: Option<&str>) -> Option<Vec<Jwk>> {
    let id = id.filter(|id| !id.is_empty());
    let matching: Vec<Jwk> = keys
        .keys
        .iter()
        .filter(|key| id.is_none() || key.common.key_id.as_deref() == id)
        .cloned()
        .collect();
    (!matching.is_empty()).then_some(matching)
}

impl Remote {
    /// All keys with this ID, or all if there is no ID; fetched if none is cached.
    async fn candidates(&self, id: Option<&str>) -> Result<Vec<Jwk>, String> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let known = state
            .keys
            .as_ref()
            .filter(|(_, came)| now - *came < FRESH)
            .and_then(|(keys, _)| matching(keys, id));
        if let Some(keys) = known {
            return Ok(keys);
        }

        if state
            .requested_at
            .is_none_or(|requested_at| now - requested_at >= REFETCH_DELAY)
        {
            state.requested_at = Some(now);
            match self.fetch().await {
                Ok(keys) => state.keys = Some((keys, now)),
                Err(error) => {
                    tracing::warn!(
                        issuer = self.issuer,
                        error,
                        "failed to fetch the JWKS of the token issuer"
                    )
                }
            }
        }

        let kept = state.keys.as_ref().filter(|(_, came)| now - *came < STALE);
        let (keys, _) = kept.ok_or("the issuer's keys are temporarily unavailable")?;
        matching(keys, id).ok_or_else(|| UNKNOWN_KEY.to_owned())
    }

    async fn fetch(&self) -> Result<JwkSet, String> {
        let uri = if self.uri.is_empty() {
            self.discover().await?
        } else {
            self.uri.clone()
        };
        let body = fetch::get(&uri).await?;
        read_keys(&body).map_err(|error| format!("{uri}: {error}"))
    }

    /// Reads the address of the keys from the issuer's discovery document.
    async fn discover(&self) -> Result<String, String> {
        let uri = format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        );
        let body = fetch::get(&uri).await?;
        let found: Discovery =
            serde_json::from_slice(&body).map_err(|error| format!("{uri}: {error}"))?;
        if found.issuer != self.issuer {
            return Err(format!("{uri} is for another issuer, {}", found.issuer));
        }
        Ok(found.jwks_uri)
    }
}
