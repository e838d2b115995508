//! A JWT and the time of its renewal.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::TokenError;

/// Time before its expiry at which a token is renewed; as pilot-agent's.
const GRACE_PERIOD: Duration = Duration::from_secs(10 * 60);

/// A token of a metadata server. `Debug` does not print it.
pub(super) struct IdentityToken {
    text: String,
    expires: SystemTime,
    renew_at: SystemTime,
}

/// The claims that the agent reads; the receiver verifies the token.
#[derive(Deserialize)]
struct Claims {
    /// Seconds since 1970.
    exp: u64,
}

impl IdentityToken {
    /// A token that was received at a time.
    ///
    /// # Errors
    /// If it is not a JWT with an expiry time, or has expired.
    pub(super) fn received(text: String, now: SystemTime) -> Result<Self, TokenError> {
        let expires = expiry(&text).ok_or(TokenError::NoJwt)?;
        let left = expires
            .duration_since(now)
            .ok()
            .filter(|left| !left.is_zero())
            .ok_or(TokenError::Expired)?;

        // A server may keep a token itself, and return it until it expires: the agent must not ask
        // for each call then.
        let grace = GRACE_PERIOD.min(left / 2);
        Ok(Self {
            text,
            expires,
            renew_at: expires.checked_sub(grace).unwrap_or(now),
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it need not be renewed yet.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        now < self.renew_at
    }

    /// Whether it has not expired.
    pub(super) fn is_valid(&self, now: SystemTime) -> bool {
        now < self.expires
    }
}

/// The expiry time of a JWT.
fn expiry(token: &str) -> Option<SystemTime> {
    let parts: Vec<_> = token.split('.').collect();
    let [_, claims, _] = parts.as_slice() else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(claims.exp))
}

impl fmt::Debug for IdentityToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityToken")
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
