//! The location of token issuers' keys.

use std::fmt;
use std::sync::Arc;

use super::istio::JwtRule;

/// Where a key set is fetched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySource {
    /// At this address.
    Uri(Arc<str>),
    /// At the address from the issuer's OpenID Connect discovery.
    Issuer(Arc<str>),
}

impl JwtRule {
    /// Where the keys of a rule are fetched; `None` if the rule contains the keys or has no
    /// location.
    #[must_use]
    pub fn key_source(&self) -> Option<KeySource> {
        match (
            self.jwks.as_str(),
            self.jwks_uri.as_str(),
            self.issuer.as_str(),
        ) {
            ("", "", "") => None,
            ("", "", issuer) => Some(KeySource::Issuer(Arc::from(issuer))),
            ("", uri, _) => Some(KeySource::Uri(Arc::from(uri))),
            (_, _, _) => None,
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(uri) => f.write_str(uri),
            Self::Issuer(issuer) => write!(f, "OpenID Connect discovery of {issuer}"),
        }
    }
}
