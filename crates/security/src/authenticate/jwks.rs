//! The keys of a token's issuer: given, or fetched and kept.

mod fetch;

use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::jwt::JwtRule;

/// How long fetched keys count without asking again.
const FRESH: Duration = Duration::from_secs(20 * 60);
/// How long to wait before asking again for a key that was not among them, or after a failure.
const REFETCH_DELAY: Duration = Duration::from_secs(15);
/// How long fetched keys count when the issuer does not answer any more.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// Where keys come from.
#[derive(Debug)]
pub(super) enum KeySource {
    /// They were given.
    Fixed(JwkSet),
    /// They are fetched.
    Remote(Box<Remote>),
}

/// Keys that are fetched.
#[derive(Debug)]
pub(super) struct Remote {
    /// Where they are; empty where the issuer says so.
    uri: String,
    issuer: String,
    /// What was fetched. Held while fetching, so that many who wait fetch once.
    state: Mutex<Fetched>,
}

/// What was fetched.
#[derive(Debug, Default)]
struct Fetched {
    /// The keys and when they came.
    keys: Option<(JwkSet, Instant)>,
    /// When they were last asked for.
    asked: Option<Instant>,
}

/// What an issuer says of itself.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    /// Where its keys are.
    jwks_uri: String,
}

impl KeySource {
    /// The keys of a rule.
    ///
    /// # Errors
    /// When keys that are given cannot be read.
    pub(super) fn new(rule: &JwtRule) -> Result<Self, String> {
        if !rule.jwks.is_empty() {
            let keys = serde_json::from_str(&rule.jwks).map_err(|error| format!("JWT_RULE: jwks: {error}"))?;
            return Ok(Self::Fixed(keys));
        }
        let remote = Remote { uri: rule.jwks_uri.clone(), issuer: rule.issuer.clone(), state: Mutex::default() };
        Ok(Self::Remote(Box::new(remote)))
    }

    /// The key of this id, or the only one where a token names none.
    ///
    /// # Errors
    /// If there is no such key, or the keys cannot be fetched: the token is rejected.
    pub(super) async fn find(&self, id: Option<&str>) -> Result<Jwk, String> {
        match self {
            Self::Fixed(keys) => pick(keys, id).cloned().ok_or_else(|| "its key is not one of the issuer's".to_owned()),
            Self::Remote(remote) => remote.find(id).await,
        }
    }
}

/// The key of this id among keys, or the only one.
fn pick<'a>(keys: &'a JwkSet, id: Option<&str>) -> Option<&'a Jwk> {
    match (id, keys.keys.as_slice()) {
        (Some(id), _) => keys.find(id),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

impl Remote {
    /// The key of this id.
    async fn find(&self, id: Option<&str>) -> Result<Jwk, String> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let known = state.keys.as_ref().filter(|(_, came)| now - *came < FRESH).and_then(|(keys, _)| pick(keys, id));
        if let Some(key) = known {
            return Ok(key.clone());
        }
        if state.asked.is_none_or(|asked| now - asked >= REFETCH_DELAY) {
            state.asked = Some(now);
            match self.fetch().await {
                Ok(keys) => state.keys = Some((keys, now)),
                Err(error) => {
                    tracing::warn!(issuer = self.issuer, error, "failed to fetch the JWKS of the token issuer")
                }
            }
        }
        let kept = state.keys.as_ref().filter(|(_, came)| now - *came < STALE);
        let (keys, _) = kept.ok_or("the issuer's keys are not available at the moment")?;
        pick(keys, id).cloned().ok_or_else(|| "its key is not one of the issuer's".to_owned())
    }

    /// Fetches the keys.
    async fn fetch(&self) -> Result<JwkSet, String> {
        let uri = if self.uri.is_empty() { self.discover().await? } else { self.uri.clone() };
        let body = fetch::get(&uri).await?;
        serde_json::from_slice(&body).map_err(|error| format!("{uri}: {error}"))
    }

    /// Asks the issuer where its keys are.
    async fn discover(&self) -> Result<String, String> {
        let uri = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let body = fetch::get(&uri).await?;
        let found: Discovery = serde_json::from_slice(&body).map_err(|error| format!("{uri}: {error}"))?;
        if found.issuer != self.issuer {
            return Err(format!("{uri} is about another issuer, {}", found.issuer));
        }
        Ok(found.jwks_uri)
    }
}
