//! The status of the roots, for operators.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::Serialize;

use super::super::bundle::certificates;
use super::super::root_store::RootStore;
use super::super::rotation::{Missing, Origin, Phase, RootSet, RotationRules};
use crate::certificate_life::CertificateLife;
use navarch_base::digest::sha256_hex;

/// Why a root is trusted. A root for which several reasons apply has the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RootRole {
    /// It signs, or an intermediate of it does.
    Signing,
    /// It signs once all proxies trust it.
    Next,
    /// It signed before.
    Former,
}

/// A root certificate that proxies trust, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RootStatus {
    /// Whether the root signs, will sign, or has signed.
    pub role: RootRole,
    /// The X.509 subject, such as `O=cluster.local`; if it is empty, the first SAN.
    pub subject: String,
    /// The SHA-256 of the certificate.
    pub fingerprint: String,
    /// The start of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// When a former root stops being trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted_until: Option<Timestamp>,
}

/// The trusted roots, and what the rotation from one to the next waits for. Sent to operators as
/// JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationStatus {
    /// `Distributing` with a next root, `Retiring` with former roots only, else `Settled`.
    pub phase: Phase,
    /// The origin of the signing CA.
    pub origin: Origin,
    /// The store of the roots.
    pub kept_in: String,
    /// All trusted roots.
    pub roots: Vec<RootStatus>,
    /// The earliest time at which the next root may sign.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signs_after: Option<Timestamp>,
    /// Proxies that do not trust all roots yet.
    pub missing: Vec<Missing>,
    /// The current problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl RotationStatus {
    /// The status of a set.
    pub(super) fn of(
        set: &RootSet,
        store: &RootStore,
        missing: &[Missing],
        problem: Option<&str>,
        rules: &RotationRules,
    ) -> Self {
        let mut roots = describe(&set.signer.roots, RootRole::Signing, None);
        if let Some(next) = &set.next {
            roots.extend(describe(&next.bundle.roots, RootRole::Next, None));
        }

        for former in &set.former {
            roots.extend(describe(
                &former.roots,
                RootRole::Former,
                Some(moment(former.until)),
            ));
        }

        // A root with several roles is listed once, with the first one.
        let mut seen = std::collections::BTreeSet::new();
        roots.retain(|root| seen.insert(root.fingerprint.clone()));
        Self {
            phase: set.phase(),
            origin: set.origin,
            kept_in: format!("{store:?}"),
            roots,
            signs_after: set
                .next
                .as_ref()
                .map(|next| moment(next.since + rules.overlap)),
            missing: missing.to_vec(),
            problem: problem.map(str::to_owned),
        }
    }
}

/// The status of roots; unreadable ones are skipped.
fn describe(pem: &str, role: RootRole, trusted_until: Option<Timestamp>) -> Vec<RootStatus> {
    let all = certificates(pem, "the roots").unwrap_or_default();
    let one = |der: &rustls::pki_types::CertificateDer<'_>| {
        let CertificateLife {
            subject,
            not_before,
            not_after,
        } = CertificateLife::of(der)?;
        Some(RootStatus {
            role,
            subject,
            fingerprint: sha256_hex(der),
            not_before,
            not_after,
            trusted_until,
        })
    };
    all.iter().filter_map(one).collect()
}

/// Converts a time.
fn moment(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}
