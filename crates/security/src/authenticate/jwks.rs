//! The keys of a token issuer: configured, or fetched and cached.

mod fetch;

use std::time::Duration;

use bytes::Bytes;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::jwt::JwtRule;
use fetch::FetchError;
use navarch_base::shown_url::ShownUrl;

/// How long fetched keys are used before they are fetched again.
const FRESH: Duration = Duration::from_secs(20 * 60);
/// Delay before keys are fetched again because a key is missing or the last fetch failed.
const REFETCH_DELAY: Duration = Duration::from_secs(15);
/// Delay before keys are fetched again because none of them verifies a token: anybody can send such
/// tokens.
const RECHECK_DELAY: Duration = Duration::from_secs(60);
/// How long fetched keys are used if they cannot be fetched again.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// Why a token cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key of the issuer can be that of the token.
    #[error("its key is not one of the issuer's")]
    Unknown,
    /// The keys cannot be fetched.
    #[error("the issuer's keys are temporarily unavailable")]
    Unavailable,
}

/// Why a document is not a usable key set.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// It is not a JSON key set.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It has only keys that cannot be read.
    #[error("none of its {0} keys can be read")]
    Unreadable(usize),
}

/// Why the keys of an issuer were not fetched.
#[derive(Debug, thiserror::Error)]
enum RemoteError {
    /// A document was not fetched.
    #[error("{uri}: {source}")]
    Fetch { uri: ShownUrl, source: FetchError },
    /// The fetched document is not a key set.
    #[error("{uri}: {source}")]
    Keys { uri: ShownUrl, source: KeySetError },
    /// The fetched document is not a discovery document.
    #[error("{uri}: {source}")]
    Discovery {
        uri: ShownUrl,
        source: serde_json::Error,
    },
    /// The discovery document is another issuer's.
    #[error("{uri} is for another issuer, {issuer}")]
    OtherIssuer { uri: ShownUrl, issuer: String },
}

pub(super) enum KeySource {
    /// The keys are configured.
    Fixed(JwkSet),
    /// The keys are fetched.
    Remote(Box<Remote>),
}

/// Keys that are fetched and cached.
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
    /// When the last fetch began that a token caused which no key verified.
    rechecked_at: Option<Instant>,
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
    pub(super) fn new(rule: &JwtRule) -> Result<Self, KeySetError> {
        if !rule.jwks.is_empty() {
            return read_keys(rule.jwks.as_bytes()).map(Self::Fixed);
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
    pub(super) async fn candidates(&self, id: Option<&str>) -> Result<Vec<Jwk>, KeyError> {
        match self {
            Self::Fixed(keys) => matching(keys, id).ok_or(KeyError::Unknown),
            Self::Remote(remote) => remote.candidates(id).await,
        }
    }

    /// The candidates after all of `tried` failed to verify a token: an issuer may replace a key
    /// and keep its ID, for which go-oidc fetches the keys again, too. `None` if they are the same,
    /// or if another token was the reason to fetch them within the last minute.
    pub(super) async fn replacements(&self, id: Option<&str>, tried: &[Jwk]) -> Option<Vec<Jwk>> {
        match self {
            Self::Fixed(_) => None,
            Self::Remote(remote) => remote.replacements(id, tried).await,
        }
    }
}

impl Fetched {
    /// All keys with this ID, or all if there is no ID, unless they are those that were tried.
    fn replacements(&self, id: Option<&str>, tried: &[Jwk]) -> Option<Vec<Jwk>> {
        let (keys, _) = self.keys.as_ref()?;
        matching(keys, id).filter(|keys| keys.as_slice() != tried)
    }
}

/// Reads a key set. Keys that cannot be read are left out (RFC 7517, section 5), so that a new kind
/// of key does not disable those beside it.
///
/// # Errors
/// If it is no key set, or has only keys that cannot be read.
fn read_keys(json: &[u8]) -> Result<JwkSet, KeySetError> {
    let sent: SentKeys = serde_json::from_slice(json)?;
    let count = sent.keys.len();
    let keys: Vec<Jwk> = sent
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value(key).ok())
        .collect();

    let unreadable = count - keys.len();
    if unreadable > 0 && keys.is_empty() {
        return Err(KeySetError::Unreadable(count));
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
    async fn candidates(&self, id: Option<&str>) -> Result<Vec<Jwk>, KeyError> {
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
            self.refetch(&mut state, now).await;
        }

        let kept = state.keys.as_ref().filter(|(_, came)| now - *came < STALE);
        let (keys, _) = kept.ok_or(KeyError::Unavailable)?;
        matching(keys, id).ok_or(KeyError::Unknown)
    }

    /// As [`KeySource::replacements`].
    async fn replacements(&self, id: Option<&str>, tried: &[Jwk]) -> Option<Vec<Jwk>> {
        let mut state = self.state.lock().await;
        // Another caller may have fetched them since.
        if let Some(keys) = state.replacements(id, tried) {
            return Some(keys);
        }

        let now = Instant::now();
        if state
            .rechecked_at
            .is_some_and(|rechecked_at| now - rechecked_at < RECHECK_DELAY)
        {
            return None;
        }

        state.rechecked_at = Some(now);
        self.refetch(&mut state, now).await;
        state.replacements(id, tried)
    }

    /// Replaces the cached keys, if they can be fetched.
    async fn refetch(&self, state: &mut Fetched, now: Instant) {
        state.requested_at = Some(now);
        match self.fetch().await {
            Ok(keys) => state.keys = Some((keys, now)),
            Err(error) => {
                tracing::warn!(
                    issuer = %ShownUrl::new(&self.issuer),
                    %error,
                    "failed to fetch the JWKS of the token issuer"
                )
            }
        }
    }

    /// Fetches the keys.
    async fn fetch(&self) -> Result<JwkSet, RemoteError> {
        let uri = if self.uri.is_empty() {
            self.discover().await?
        } else {
            self.uri.clone()
        };
        let body = document(&uri).await?;
        read_keys(&body).map_err(|source| RemoteError::Keys {
            uri: ShownUrl::new(&uri),
            source,
        })
    }

    /// Reads the address of the keys from the issuer's discovery document.
    async fn discover(&self) -> Result<String, RemoteError> {
        let uri = format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        );
        let body = document(&uri).await?;
        let uri = ShownUrl::new(&uri);
        let found: Discovery = match serde_json::from_slice(&body) {
            Ok(found) => found,
            Err(source) => return Err(RemoteError::Discovery { uri, source }),
        };

        if found.issuer != self.issuer {
            return Err(RemoteError::OtherIssuer {
                uri,
                issuer: found.issuer,
            });
        }
        Ok(found.jwks_uri)
    }
}

/// Fetches a document.
async fn document(uri: &str) -> Result<Bytes, RemoteError> {
    fetch::get(uri).await.map_err(|source| RemoteError::Fetch {
        uri: ShownUrl::new(uri),
        source,
    })
}
