//! Sets of a token issuer's public keys (JWKS), read as Envoy reads them.
//!
//! Envoy rejects a listener with a key set that it cannot use, and with it all inbound
//! configuration of a proxy. Key sets come from issuers and from users, so only what Envoy accepts
//! is sent to it: a set without the keys that it rejects, and never an empty one. Agrees with
//! `source/common/jwt/jwks.cc` of Envoy 1.40; crates/api/tests/key_sets.rs compares both.

mod certificates;
mod json;
mod key;

use std::fmt;

use serde_json::{Value, json};

/// Maximum number of rejected keys in a text.
const MAX_NAMED: usize = 8;
/// Maximum length of a key ID in a text, in characters.
const MAX_KID: usize = 64;

/// A key set that Envoy accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet {
    /// The set as JSON: as it was given, unless keys had to be left out or Envoy could not read it.
    pub text: String,
    /// The keys that Envoy would leave out.
    pub rejected: RejectedKeys,
}

/// Why Envoy rejects a key set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// It has neither keys nor certificates.
    #[error("it has no list \"keys\"")]
    NoKeys,
    /// A certificate cannot be used.
    #[error("the certificate {0:?} is not a PEM certificate with an RSA key")]
    Certificate(String),
    /// None of the keys can be used.
    #[error("it has no key that Envoy can use{0}")]
    Unusable(RejectedKeys),
}

/// Keys that Envoy cannot use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedKeys(pub Vec<RejectedKey>);

/// A key that Envoy cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedKey {
    /// Its place in the set.
    pub index: usize,
    /// Its `kid`; empty if it has none.
    pub kid: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl KeySet {
    /// Reads a set.
    ///
    /// # Errors
    /// If Envoy would reject the set.
    pub fn parse(text: &str) -> Result<Self, KeySetError> {
        let document =
            json::parse(text).map_err(|error| KeySetError::NotJson(error.to_string()))?;
        let Some(keys) = document.value.get("keys") else {
            certificates::check(&document.value)?;
            return Ok(Self {
                text: document.text(text),
                rejected: RejectedKeys::default(),
            });
        };

        let keys = keys.as_array().ok_or(KeySetError::NoKeys)?;
        let mut accepted = Vec::new();
        let mut rejected = RejectedKeys::default();
        for (index, value) in keys.iter().enumerate() {
            match key::check(value) {
                Ok(()) => accepted.push(key::essence(value)),
                Err(reason) => rejected.0.push(RejectedKey {
                    index,
                    kid: kid(value).to_owned(),
                    reason,
                }),
            }
        }

        if accepted.is_empty() {
            return Err(KeySetError::Unusable(rejected));
        }
        let text = if rejected.0.is_empty() && document.is_plain {
            text.to_owned()
        } else {
            json!({ "keys": accepted }).to_string()
        };
        Ok(Self { text, rejected })
    }
}

/// The ID of a key.
fn kid(key: &Value) -> &str {
    key.get("kid").and_then(Value::as_str).unwrap_or_default()
}

impl fmt::Display for RejectedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.index)?;
        if !self.kid.is_empty() {
            let kid: String = self.kid.chars().take(MAX_KID).collect();
            write!(f, " ({kid:?})")?;
        }
        write!(f, " {}", self.reason)
    }
}

/// Begins with a colon, if there are any.
impl fmt::Display for RejectedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, key) in self.0.iter().take(MAX_NAMED).enumerate() {
            f.write_str(if place == 0 { ": " } else { "; " })?;
            key.fmt(f)?;
        }
        match self.0.len().saturating_sub(MAX_NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests;
