//! The location of token issuers' keys.

use std::fmt;
use std::sync::Arc;

use super::istio::JwtRule;
use navarch_base::shown_url::ShownUrl;

/// Where a key set is fetched. `Display` and `Debug` leave out a password in the address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
            Self::Uri(uri) => ShownUrl::new(uri).fmt(f),
            Self::Issuer(issuer) => {
                let issuer = ShownUrl::new(issuer);
                write!(f, "OpenID Connect discovery of {issuer}")
            }
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, address) = match self {
            Self::Uri(uri) => ("Uri", uri),
            Self::Issuer(issuer) => ("Issuer", issuer),
        };
        f.debug_tuple(name).field(&ShownUrl::new(address)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_sources_are_shown_without_passwords() {
        let address = "https://user:secret@keys.example/jwks";
        let uri = KeySource::Uri(Arc::from(address));
        assert_eq!(uri.to_string(), "https://***@keys.example/jwks");
        assert_eq!(
            format!("{uri:?}"),
            r#"Uri("https://***@keys.example/jwks")"#
        );

        let issuer = KeySource::Issuer(Arc::from(address));
        assert_eq!(
            issuer.to_string(),
            "OpenID Connect discovery of https://***@keys.example/jwks"
        );
        assert!(!format!("{issuer:?}").contains("secret"));
    }
}
