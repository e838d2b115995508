//! Which roots a webhook is known by: ours, and for a while those that were there before.
//!
//! A root is replaced without a gap, and replicas that are given a new one at different times do not fight: each adds its
//! own, and takes away what is none of its own only when that has been there for long.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The most roots of others that are left in place.
const OTHERS: usize = 8;
/// How a certificate starts.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// How a certificate ends.
const END: &str = "-----END CERTIFICATE-----";

/// Roots that are not ours, and since when they were seen.
#[derive(Debug, Default)]
pub(super) struct Grace(BTreeMap<String, Instant>);

/// The certificates of a PEM text, each without the space around it; whatever else is in it is left out.
pub(super) fn certificates(pem: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = pem;
    while let Some(start) = rest.find(BEGIN) {
        let Some(from) = rest.get(start..) else { break };
        let Some(end) = from.find(END) else { break };
        let Some(certificate) = from.get(..end + END.len()) else { break };
        found.push(certificate);
        rest = from.get(end + END.len()..).unwrap_or_default();
    }
    found
}

/// The roots that a webhook must hold which holds `found`, and when to look again for roots of others to go.
pub(super) fn merge(
    found: &str,
    ours: &str,
    grace: &mut Grace,
    lasts: Duration,
    now: Instant,
) -> (String, Option<Instant>) {
    let mine = certificates(ours);
    let mut kept = Vec::new();
    let mut next: Option<Instant> = None;
    for other in certificates(found).into_iter().filter(|other| !mine.contains(other)).take(OTHERS) {
        let is_one = x509_parser::pem::parse_x509_pem(other.as_bytes()).is_ok_and(|(_, pem)| pem.parse_x509().is_ok());
        if !is_one || kept.contains(&other) {
            continue;
        }
        let until = *grace.0.entry(other.to_owned()).or_insert(now) + lasts;
        if until > now {
            kept.push(other);
            next = Some(next.map_or(until, |next| next.min(until)));
        }
    }
    // What is gone for a while and comes again is new again.
    grace.0.retain(|_, since| *since + lasts * 2 > now);
    if kept.is_empty() {
        return (ours.to_owned(), None);
    }
    // In the order in which they stand, if all is there: then nothing is written.
    let found_all = certificates(found);
    if mine.iter().all(|root| found_all.contains(root))
        && found_all.iter().all(|root| mine.contains(root) || kept.contains(root))
    {
        return (found.to_owned(), next);
    }
    let mut all = mine.iter().copied().chain(kept).collect::<Vec<_>>().join("\n");
    all.push('\n');
    (all, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn roots_of_others_stay_for_a_while_and_garbage_goes_at_once() {
        let (old, new, start) = (root("old"), root("new"), Instant::now());
        let mut grace = Grace::default();
        let lasts = Duration::from_secs(60);
        let merged = |found: &str, grace: &mut Grace, now: Instant| merge(found, &new, grace, lasts, now);
        for found in ["", "x", &format!("{BEGIN}\nx\n{END}\n"), &new] {
            assert_eq!(merged(found, &mut grace, start), (new.clone(), None));
        }
        let (both, next) = merged(&old, &mut grace, start);
        assert_eq!(certificates(&both), [new.trim(), old.trim()]);
        assert_eq!(next, Some(start + lasts));
        // Another replica, which has the old root still, is content with both in this order.
        assert_eq!(merge(&both, &old, &mut Grace::default(), lasts, start).0, both);
        assert_eq!(merged(&both, &mut grace, start + lasts), (new.clone(), None));
    }
}
