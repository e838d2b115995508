//! The TLS versions and cipher suites of the server ports.

use std::sync::Arc;

use navarch_base::compliance::CompliancePolicy;
use navarch_net::cryptography;
use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// TLS 1.2 and later.
const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
/// Only TLS 1.3.
const NEWEST: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// `--tls-min-version` and `--tls-cipher-suites`. By default TLS 1.2 and later, with all safe
/// suites. A compliance policy overrides both, as in istiod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsRules {
    /// Whether TLS 1.2 is disabled.
    only_newest: bool,
    /// The suites of TLS 1.2, by their names in Go and IANA; `None` for all.
    suites: Option<Vec<String>>,
}

/// Errors in the flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsRulesError {
    /// The version is not supported.
    #[error("--tls-min-version={0:?}: use 1.2 or 1.3")]
    Version(String),
    /// The suite is unknown.
    #[error("--tls-cipher-suites: unknown cipher suite {0:?}")]
    Suite(String),
}

impl TlsRules {
    /// Parses the two flags. As in Go, suites apply to TLS 1.2 only. Also returns the given suites
    /// that are not supported because they are not safe.
    ///
    /// # Errors
    /// If a version or suite is unknown.
    pub fn read(
        min_version: &str,
        suites: &[String],
    ) -> Result<(Self, Vec<String>), TlsRulesError> {
        let only_newest = match min_version {
            "1.2" => false,
            "1.3" => true,
            other => return Err(TlsRulesError::Version(other.to_owned())),
        };
        let mut rules = Self {
            only_newest,
            suites: None,
        };

        let named: Vec<&str> = suites
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
            .collect();
        if let Some(wrong) = named.iter().find(|name| !name.starts_with("TLS_")) {
            return Err(TlsRulesError::Suite((*wrong).to_owned()));
        }

        if named.is_empty() {
            return Ok((rules, Vec::new()));
        }

        let known: Vec<String> = aws_lc_rs::ALL_CIPHER_SUITES
            .iter()
            .map(|one| name(*one))
            .collect();
        let (spoken, never): (Vec<&str>, Vec<&str>) = named
            .iter()
            .partition(|name| known.iter().any(|one| one == *name));
        rules.suites = Some(spoken.into_iter().map(str::to_owned).collect());

        Ok((rules, never.into_iter().map(str::to_owned).collect()))
    }

    /// Whether one of the flags restricts anything.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The cryptography provider of servers.
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let provider = cryptography::provider();
        match &self.suites {
            Some(suites) if cryptography::policy() == CompliancePolicy::None => {
                let mut provider = CryptoProvider::clone(&provider);
                provider
                    .cipher_suites
                    .retain(|one| one.tls13().is_some() || suites.contains(&name(*one)));
                Arc::new(provider)
            }
            _ => provider,
        }
    }

    /// The TLS versions of servers.
    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        if cryptography::policy() != CompliancePolicy::None {
            return BOTH;
        }

        let has_older = self
            .provider()
            .cipher_suites
            .iter()
            .any(|one| one.tls13().is_none());
        if self.only_newest || !has_older {
            NEWEST
        } else {
            BOTH
        }
    }
}

/// The name of a suite in Go and IANA.
fn name(suite: rustls::SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list.
    fn read(version: &str, suites: &str) -> Result<(TlsRules, Vec<String>), TlsRulesError> {
        TlsRules::read(
            version,
            &suites.split(',').map(str::to_owned).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn suites_are_named_as_in_go() {
        let (rules, never) =
            read("1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256")
                .unwrap();
        assert_eq!(never, ["TLS_RSA_WITH_AES_128_CBC_SHA"]);
        let left: Vec<_> = rules
            .provider()
            .cipher_suites
            .iter()
            .map(|one| name(*one))
            .collect();

        // Those of TLS 1.3 cannot be chosen, as in Go.
        assert_eq!(
            left.iter().filter(|name| name.contains("_WITH_")).count(),
            1,
            "{left:?}"
        );
        assert!(left.len() > 2, "{left:?}");
        assert_eq!(rules.versions().len(), 2);
    }

    #[test]
    fn without_suites_of_tls_1_2_it_is_not_spoken() {
        assert_eq!(
            read("1.2", "TLS_RSA_WITH_RC4_128_SHA")
                .unwrap()
                .0
                .versions()
                .len(),
            1
        );

        assert_eq!(read("1.3", "").unwrap().0.versions().len(), 1);
        assert_eq!(read("1.2", "").unwrap().0, TlsRules::default());
        assert_eq!(
            read("1.1", ""),
            Err(TlsRulesError::Version("1.1".to_owned()))
        );
        assert_eq!(
            read("1.2", "AES"),
            Err(TlsRulesError::Suite("AES".to_owned()))
        );
    }
}
