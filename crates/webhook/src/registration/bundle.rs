//! The roots in `caBundle`: this replica's, and for a limited time the previous ones.
//!
//! Both old and new roots are present during a rotation, and replicas that receive a new root at
//! different times do not conflict: each adds its own roots, and removes others only after they
//! were present for the grace period.

use std::collections::BTreeMap;
use std::time::Duration;

use navarch_pki::pem;
use tokio::time::Instant;

/// Maximum number of foreign roots that are kept.
const OTHERS: usize = 8;

/// Foreign roots, with the time when each was first seen.
#[derive(Debug, Default)]
pub(super) struct Grace(BTreeMap<String, Instant>);

/// The certificates of a PEM text, each as separate PEM; other content is dropped.
pub(super) fn certificates(text: &str) -> Vec<String> {
    let found = pem::readable_certificates(text.as_bytes(), "caBundle").unwrap_or_default();
    found
        .iter()
        .map(|certificate| pem::encode(certificate))
        .collect()
}

/// The roots for a webhook that now contains `found`, and the time at which the next foreign root
/// expires.
pub(super) fn merge(
    found: &str,
    ours: &str,
    grace: &mut Grace,
    lasts: Duration,
    now: Instant,
) -> (String, Option<Instant>) {
    let mine = certificates(ours);
    let all = certificates(found);
    let mut kept = Vec::new();
    let mut next: Option<Instant> = None;

    for other in all
        .iter()
        .filter(|other| !mine.contains(other))
        .take(OTHERS)
    {
        let is_one = x509_parser::pem::parse_x509_pem(other.as_bytes())
            .is_ok_and(|(_, pem)| pem.parse_x509().is_ok());
        if !is_one || kept.contains(&other) {
            continue;
        }
        let until = *grace.0.entry(other.clone()).or_insert(now) + lasts;
        if until > now {
            kept.push(other);
            next = Some(next.map_or(until, |next| next.min(until)));
        }
    }

    // A root that was absent for long gets a new grace period when it appears again.
    grace.0.retain(|_, since| *since + lasts * 2 > now);
    if kept.is_empty() {
        return (ours.to_owned(), None);
    }

    // If nothing is missing or expired, the existing order is kept, so that nothing is written.
    if pem::certificates(found.as_bytes(), "caBundle").is_ok()
        && mine.iter().all(|root| all.contains(root))
        && all
            .iter()
            .all(|root| mine.contains(root) || kept.contains(&root))
    {
        return (found.to_owned(), next);
    }
    (mine.iter().chain(kept).map(String::as_str).collect(), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(vec![name.to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap()
            .pem()
    }

    #[test]
    fn foreign_roots_stay_for_a_grace_period_and_garbage_is_removed() {
        let old = root("old");
        let new = root("new");
        let start = Instant::now();
        let mut grace = Grace::default();
        let lasts = Duration::from_secs(60);
        let merged =
            |found: &str, grace: &mut Grace, now: Instant| merge(found, &new, grace, lasts, now);

        for found in [
            "",
            "x",
            "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
            &new,
        ] {
            assert_eq!(merged(found, &mut grace, start), (new.clone(), None));
        }

        let (both, next) = merged(&old, &mut grace, start);
        assert_eq!(certificates(&both), [new.as_str(), old.as_str()]);
        assert_eq!(next, Some(start + lasts));

        // Another replica, which has the old root still, is content with both in this order.
        assert_eq!(
            merge(&both, &old, &mut Grace::default(), lasts, start).0,
            both
        );
        assert_eq!(
            merged(&both, &mut grace, start + lasts),
            (new.clone(), None)
        );
    }
}
