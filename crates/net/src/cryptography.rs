//! The cryptography of all TLS in a process, restricted by `COMPLIANCE_POLICY`.
//!
//! [`install`] sets it at the start of a program; every server and client of TLS is then built with
//! [`provider`], and libraries that ask rustls for its default get the same one. Without a policy
//! it is that of aws-lc-rs, with the post-quantum key exchange X25519MLKEM768 first.
//!
//! | policy | TLS | cipher suites | key exchange |
//! | --- | --- | --- | --- |
//! | none | 1.2, 1.3 | AES-GCM, ChaCha20-Poly1305 | X25519MLKEM768, X25519, P-256, P-384 |
//! | `fips-140-2` | 1.2 | AES-GCM | P-256 |
//! | `fips-140-3` | 1.2, 1.3 | AES-GCM | P-256, P-384 |
//! | `pqc` | 1.3 | AES-GCM | X25519MLKEM768 |
//!
//! It agrees with `EnforceGoCompliance` in Istio's `pkg/model/fips.go`, and is stricter in two
//! places: Istio leaves out some of its clients, and Go's TLS 1.3 keeps ChaCha20-Poly1305 with every
//! policy (with `fips-140-3` unless `GODEBUG=fips140=only` is set as well).

use std::sync::{Arc, OnceLock};

use navarch_base::compliance::CompliancePolicy;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{CipherSuite, SupportedCipherSuite};

/// What [`install`] has set for this process.
static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// A policy, and what it allows.
#[derive(Debug)]
struct Installed {
    policy: CompliancePolicy,
    provider: Arc<CryptoProvider>,
}

/// Sets the policy for all TLS of this process, by its name in `COMPLIANCE_POLICY`; as in istiod,
/// an unknown name is no policy. Only the first call has an effect, and only on configurations that
/// are built after it.
///
/// It runs before logging starts: programs that serve call [`warn_unknown`] later.
pub fn install(name: &str) {
    let policy = CompliancePolicy::parse(name).unwrap_or_default();
    let provider = restricted(policy);
    let installed = Installed {
        policy,
        provider: Arc::new(provider.clone()),
    };

    let is_first = INSTALLED.set(installed).is_ok();
    if is_first {
        // rustls has a default already only if a library has built a configuration before.
        let _ = provider.install_default();
    }
}

/// Logs that a name in `COMPLIANCE_POLICY` is unknown, so that nothing restricts TLS.
pub fn warn_unknown(name: &str) {
    if CompliancePolicy::parse(name).is_none() {
        tracing::warn!(
            policy = name,
            "COMPLIANCE_POLICY: unknown policy, TLS is not restricted: use fips-140-2, fips-140-3 or pqc"
        );
    }
}

/// The policy of this process; none before [`install`].
#[must_use]
pub fn policy() -> CompliancePolicy {
    INSTALLED
        .get()
        .map(|installed| installed.policy)
        .unwrap_or_default()
}

/// What TLS configurations of this process are built with. Use all of rustls's protocol versions
/// with it: those without a cipher suite are neither offered nor accepted.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    match INSTALLED.get() {
        Some(installed) => installed.provider.clone(),
        // Tests use parts of a program without its start.
        None => Arc::new(restricted(CompliancePolicy::None)),
    }
}

/// Whether the program was built with the FIPS module of AWS-LC (feature `fips`), and everything
/// that the policy of this process allows is approved by it.
#[must_use]
pub fn is_fips() -> bool {
    provider().fips()
}

/// What a policy allows of aws-lc-rs.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that chooses the cryptography"
)]
fn restricted(policy: CompliancePolicy) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let groups: &[&'static dyn SupportedKxGroup] = match policy {
        CompliancePolicy::None => return provider,
        CompliancePolicy::Fips140v2 => &[kx_group::SECP256R1],
        CompliancePolicy::Fips140v3 => &[kx_group::SECP256R1, kx_group::SECP384R1],
        CompliancePolicy::PostQuantum => &[kx_group::X25519MLKEM768],
    };

    provider.kx_groups = groups.to_vec();
    provider
        .cipher_suites
        .retain(|suite| is_aes_gcm(*suite) && has_version(policy, *suite));
    provider
}

/// Whether a suite encrypts by AES-GCM: all others of aws-lc-rs use ChaCha20-Poly1305.
fn is_aes_gcm(suite: SupportedCipherSuite) -> bool {
    matches!(
        suite.suite(),
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS13_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
    )
}

/// Whether a policy allows the version of TLS that a suite belongs to.
fn has_version(policy: CompliancePolicy, suite: SupportedCipherSuite) -> bool {
    let is_newest = suite.tls13().is_some();
    match policy {
        CompliancePolicy::None | CompliancePolicy::Fips140v3 => true,
        CompliancePolicy::Fips140v2 => !is_newest,
        CompliancePolicy::PostQuantum => is_newest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::NamedGroup;

    /// The key exchanges of a policy, in the order of preference.
    fn groups(policy: CompliancePolicy) -> Vec<NamedGroup> {
        let provider = restricted(policy);
        provider
            .kx_groups
            .iter()
            .map(|group| group.name())
            .collect()
    }

    /// The suites of a policy, by name.
    fn suites(policy: CompliancePolicy) -> Vec<String> {
        let provider = restricted(policy);
        let mut names: Vec<String> = provider
            .cipher_suites
            .iter()
            .map(|suite| format!("{:?}", suite.suite()))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn post_quantum_key_exchange_is_preferred() {
        let mut expected = vec![
            NamedGroup::X25519MLKEM768,
            NamedGroup::X25519,
            NamedGroup::secp256r1,
            NamedGroup::secp384r1,
        ];
        // By itself it is not approved.
        expected.retain(|group| !cfg!(feature = "fips") || *group != NamedGroup::X25519);
        assert_eq!(groups(CompliancePolicy::None), expected);
        assert_eq!(
            groups(CompliancePolicy::PostQuantum),
            [NamedGroup::X25519MLKEM768]
        );
    }

    #[test]
    fn fips_policies_allow_the_curves_of_nist() {
        assert_eq!(groups(CompliancePolicy::Fips140v2), [NamedGroup::secp256r1]);
        assert_eq!(
            groups(CompliancePolicy::Fips140v3),
            [NamedGroup::secp256r1, NamedGroup::secp384r1]
        );
    }

    #[test]
    fn policies_allow_suites_with_aes_gcm_of_their_versions() {
        let newest = ["TLS13_AES_128_GCM_SHA256", "TLS13_AES_256_GCM_SHA384"];
        let older = [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        ];

        // A FIPS build has none with ChaCha20-Poly1305.
        let unrestricted = if cfg!(feature = "fips") { 6 } else { 9 };
        assert_eq!(suites(CompliancePolicy::None).len(), unrestricted);
        assert_eq!(suites(CompliancePolicy::Fips140v2), older);
        assert_eq!(
            suites(CompliancePolicy::Fips140v3),
            [newest.as_slice(), older.as_slice()].concat()
        );
        assert_eq!(suites(CompliancePolicy::PostQuantum), newest);
    }
}
