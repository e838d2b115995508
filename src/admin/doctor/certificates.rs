//! The certificates of the mesh, the proxies that do not trust them yet, and who signs.

use jiff::Timestamp;
use navarch_answers::doctor::{CertificateEnd, Check, Health, Level, MAX_FINDINGS_PER_CHECK};
use navarch_security::ca::CurrentAuthority;
use navarch_security::ca::external::{ExternalSigners, SignerReport};
use navarch_security::ca::keeper::{RootRole, RotationStatus};
use navarch_security::ca::rotation::Origin;
use navarch_security::certificate_life::CertificateLife;
use navarch_security::serving::ServingTls;

/// The signing and the server certificates.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The signing certificate of workloads; `None` without a CA.
    pub authority: Option<CurrentAuthority>,
    /// The server certificate of the TLS ports.
    pub serving: ServingTls,
    /// Who signs workload certificates, where it is not the CA.
    pub signers: ExternalSigners,
}

impl Certificates {
    /// Reports the expiry of each, except roots, which [`roots`] reports.
    pub(super) fn add_findings(&self, now: Timestamp, health: &mut Health) {
        let authority = self.authority.as_ref().map(CurrentAuthority::get);
        let chain = authority.iter().flat_map(|authority| authority.chain());
        let next = "kubectl get secret cacerts -n istio-system -o yaml, and replace it";
        for life in chain.filter_map(CertificateLife::of) {
            health.add_certificate(end("intermediate", life, now), now, next);
        }
        let shown = self.serving.chain();
        if let Some(life) = shown.first().and_then(CertificateLife::of) {
            let next = "kubectl logs -n istio-system deploy/istiod";
            health.add_certificate(
                end("server certificate (15012, 15017)", life, now),
                now,
                next,
            );
        }
    }
}

/// Reports signers that are away or have failed, the expiry of their certificates, and the proxies
/// that do not trust their roots yet.
pub(super) fn signers(reports: &[SignerReport], now: Timestamp, health: &mut Health) {
    let next = "navarch ca status, and kubectl logs -n istio-system deploy/istiod";
    for report in reports {
        let name = report.name;
        let last = report.last_success.map_or_else(
            || "it has signed nothing since the start".to_owned(),
            |moment| format!("it last signed at {moment}"),
        );
        if let Some(away) = &report.away {
            let what = format!(
                "the signer {name} is unreachable, {last}; existing certificates stay valid: {away}"
            );
            health.add(Check::Certificates, Level::Wrong, what, next);
        } else if let Some(error) = &report.last_error
            && report.last_error_at > report.last_success
        {
            let what = format!("the signer {name} did not sign its last request, {last}: {error}");
            health.add(Check::Certificates, Level::Note, what, next);
        }

        for one in report.unavailable.iter().take(MAX_FINDINGS_PER_CHECK) {
            let what = format!(
                "the signer {name} is unavailable for the namespace {}; existing certificates stay valid: {}",
                one.namespace, one.why
            );
            health.add(Check::Certificates, Level::Wrong, what, next);
        }

        let next = format!("renew it at the signer {name}");
        let links = report.chain.iter();
        for link in links {
            let role = format!("intermediate of {name}");
            let validity = [link.not_before, link.not_after];
            let one = CertificateEnd::new(&role, link.subject.clone(), validity, now);
            health.add_certificate(one, now, &next);
        }
        for root in &report.roots {
            let role = format!("root of {name}");
            let validity = [root.not_before, root.not_after];
            let one = CertificateEnd::new(&role, root.subject.clone(), validity, now);
            health.add_certificate(one, now, &next);
        }

        for missing in report.missing.iter().take(MAX_FINDINGS_PER_CHECK) {
            let what = format!(
                "{} does not trust a new root of the signer {name}: {}",
                missing.who, missing.why
            );
            health.add(Check::Roots, Level::Note, what, "navarch ca status");
        }
    }
}

/// A certificate for the report.
fn end(role: &str, life: CertificateLife, now: Timestamp) -> CertificateEnd {
    CertificateEnd::new(role, life.subject, [life.not_before, life.not_after], now)
}

/// Reports the expiry and problems of roots, and the proxies that do not trust all of them.
pub(super) fn roots(status: &RotationStatus, now: Timestamp, health: &mut Health) {
    if let Some(problem) = &status.problem {
        health.add(
            Check::Roots,
            Level::Wrong,
            format!("roots of the mesh: {problem}"),
            "navarch ca status",
        );
    }

    let next = match status.origin {
        Origin::SelfSigned => "navarch ca rotate",
        Origin::PluggedIn => "kubectl get secret cacerts -n istio-system -o yaml, and replace it",
    };

    for root in &status.roots {
        let role = match root.role {
            RootRole::Signing => "root",
            RootRole::Next => "next root",
            // It no longer signs, and is removed automatically.
            RootRole::Former => continue,
        };
        let one = CertificateEnd::new(
            role,
            root.subject.clone(),
            [root.not_before, root.not_after],
            now,
        );
        health.add_certificate(one, now, next);
    }

    health.roots = status
        .roots
        .iter()
        .map(|root| root.fingerprint.clone())
        .collect();
    health.roots.sort_unstable();

    // Until it may sign, a new root is being distributed.
    let is_due = status.signs_after.is_none_or(|moment| moment < now);
    let level = if is_due { Level::Wrong } else { Level::Note };

    for missing in status.missing.iter().take(MAX_FINDINGS_PER_CHECK) {
        let what = format!(
            "{} does not trust all roots of the mesh: {}",
            missing.who, missing.why
        );
        health.add(Check::Roots, level, what, "navarch ca status");
    }

    health.more(
        Check::Roots,
        status.missing.len(),
        "proxies or replicas that do not trust all roots of the mesh",
        "navarch ca status",
    );
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use navarch_security::ca::external::UnavailableNamespace;
    use navarch_security::ca::keeper::RootStatus;
    use navarch_security::ca::rotation::{Missing, Phase};

    use super::*;

    fn status(now: Timestamp, left_days: i64, missing: usize) -> RotationStatus {
        let root = |role, fingerprint: &str, left_days: i64| RootStatus {
            role,
            subject: "O=cluster.local".to_owned(),
            fingerprint: fingerprint.to_owned(),
            not_before: now - SignedDuration::from_hours(24 * 3000),
            not_after: now + SignedDuration::from_hours(24 * left_days),
            trusted_until: None,
        };

        let who = |n| Missing {
            who: format!("web-{n}.shop-1"),
            why: "it has not acknowledged the roots".to_owned(),
        };
        RotationStatus {
            phase: Phase::Settled,
            origin: Origin::SelfSigned,
            kept_in: "memory".to_owned(),
            roots: vec![
                root(RootRole::Signing, "b", left_days),
                root(RootRole::Former, "a", -1),
            ],
            signs_after: None,
            missing: (0..missing).map(who).collect(),
            problem: None,
        }
    }

    #[test]
    fn roots_are_listed_and_reported_before_expiry() {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 10_000);
        let mut health = Health::default();
        roots(&status(now, 400, 0), now, &mut health);
        assert_eq!(health.findings, [], "a former one may end");
        assert_eq!(
            (health.certificates[0].days, health.certificates.len()),
            (400, 1)
        );
        assert_eq!(health.roots, ["a", "b"]);
        let mut health = Health::default();
        roots(&status(now, 3, 0), now, &mut health);
        assert_eq!(
            (health.findings[0].level, &*health.findings[0].next),
            (Level::Wrong, "navarch ca rotate")
        );
    }

    #[test]
    fn signers_that_do_not_sign_are_reported() {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 10_000);
        let report = SignerReport {
            name: "spire",
            namespaces: Vec::new(),
            away: None,
            unavailable: Vec::new(),
            last_success: Some(now),
            last_error: Some("the signer is busy".to_owned()),
            last_error_at: Some(now - SignedDuration::from_hours(1)),
            chain: Vec::new(),
            roots: Vec::new(),
            missing: Vec::new(),
        };
        let found = |report: SignerReport| {
            let mut health = Health::default();
            signers(&[report], now, &mut health);
            health.findings
        };
        assert_eq!(found(report.clone()), [], "it has signed since");

        let failed = SignerReport {
            last_success: None,
            ..report.clone()
        };
        assert_eq!(found(failed)[0].level, Level::Note);
        let unavailable = SignerReport {
            unavailable: vec![UnavailableNamespace {
                namespace: "shop".to_owned(),
                why: "its key is locked".to_owned(),
            }],
            ..report.clone()
        };
        let findings = found(unavailable);
        assert_eq!((findings.len(), findings[0].level), (1, Level::Wrong));
        assert!(findings[0].what.contains("shop; existing"));
        let away = SignerReport {
            away: Some("connection refused".to_owned()),
            ..report
        };
        let findings = found(away);
        assert_eq!(findings[0].level, Level::Wrong);
        assert!(findings[0].what.contains("connection refused"));
    }

    #[test]
    fn proxies_that_lack_roots_are_named() {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 10_000);
        let mut on_its_way = status(now, 400, 1);
        on_its_way.signs_after = Some(now + SignedDuration::from_mins(10));
        let mut health = Health::default();
        roots(&on_its_way, now, &mut health);
        assert!(
            !health.is_wrong()
                && health.findings[0]
                    .what
                    .starts_with("web-0.shop-1 does not trust all roots")
        );
        let mut health = Health::default();
        roots(&status(now, 400, 7), now, &mut health);
        assert!(
            health.is_wrong() && health.findings.len() == 6,
            "five, and how many more: {health}"
        );
    }
}
