//! Where the roots stand, for people to look at.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::Serialize;

use super::super::bundle::certificates;
use super::super::root_store::RootStore;
use super::super::rotation::{Missing, Origin, Phase, RootSet, RotationRules};
use crate::certificate_life::CertificateLife;
use navarch_api::digest::sha256_hex;

/// What a root is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RootRole {
    /// Certificates are signed by it, or by an intermediate of it.
    Signing,
    /// It is to sign once everybody trusts it.
    Next,
    /// It has signed.
    Former,
}

/// One root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RootStatus {
    /// What it is for.
    pub role: RootRole,
    /// Whose it is.
    pub subject: String,
    /// The SHA-256 of the certificate.
    pub fingerprint: String,
    /// When it begins.
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
    /// Until when a former one is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted_until: Option<Timestamp>,
}

/// Where all of them stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationStatus {
    /// The phase.
    pub phase: Phase,
    /// Where what signs comes from.
    pub origin: Origin,
    /// Where they are kept.
    pub kept_in: String,
    /// All that are trusted.
    pub roots: Vec<RootStatus>,
    /// When the next one may sign at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signs_after: Option<Timestamp>,
    /// Who does not trust all of them yet.
    pub missing: Vec<Missing>,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl RotationStatus {
    /// Of a set.
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
            roots.extend(describe(&former.roots, RootRole::Former, Some(moment(former.until))));
        }
        // A root that stays is shown for what it is first.
        let mut seen = std::collections::BTreeSet::new();
        roots.retain(|root| seen.insert(root.fingerprint.clone()));
        Self {
            phase: set.phase(),
            origin: set.origin,
            kept_in: format!("{store:?}"),
            roots,
            signs_after: set.next.as_ref().map(|next| moment(next.since + rules.overlap)),
            missing: missing.to_vec(),
            problem: problem.map(str::to_owned),
        }
    }
}

/// The status of roots; unreadable ones are skipped.
fn describe(pem: &str, role: RootRole, trusted_until: Option<Timestamp>) -> Vec<RootStatus> {
    let all = certificates(pem, "the roots").unwrap_or_default();
    let one = |der: &rustls::pki_types::CertificateDer<'_>| {
        let CertificateLife { subject, not_before, not_after } = CertificateLife::of(der)?;
        Some(RootStatus { role, subject, fingerprint: sha256_hex(der), not_before, not_after, trusted_until })
    };
    all.iter().filter_map(one).collect()
}

/// A moment as it is shown.
fn moment(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}
