//! Expiry of certificates.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Check, Health, Level};

/// Remaining lifetime below which a certificate is a note: enough to replace one by hand.
const NOTE_BEFORE_EXPIRY: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Remaining lifetime below which it is wrong.
const WRONG_BEFORE_EXPIRY: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The same as a fraction of its lifetime, for short-lived certificates: Navarch renews its own at
/// half of it.
const EARLY_SHARE: i32 = 5;
const LATE_SHARE: i32 = 10;

/// A certificate with its validity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEnd {
    /// Its use, such as `root` or `intermediate`.
    pub role: String,
    /// Its subject, or the first name if it has none.
    pub subject: String,
    /// X.509 `notBefore`. The thresholds of short-lived certificates are shares of the time from
    /// here to `not_after`.
    pub not_before: Timestamp,
    /// X.509 `notAfter`: peers reject the certificate afterwards. `days` is counted to here.
    pub not_after: Timestamp,
    /// Whole days until expiry, negative after it.
    pub days: i64,
}

impl CertificateEnd {
    /// A certificate at a time.
    #[must_use]
    pub fn new(
        role: &str,
        subject: String,
        [not_before, not_after]: [Timestamp; 2],
        now: Timestamp,
    ) -> Self {
        let days = not_after.duration_since(now).as_hours().div_euclid(24);
        Self {
            role: role.to_owned(),
            subject,
            not_before,
            not_after,
            days,
        }
    }

    /// The severity of its expiry at a time.
    fn level(&self, now: Timestamp) -> Option<Level> {
        let life = self.not_after.duration_since(self.not_before);
        let left = self.not_after.duration_since(now);
        if left < WRONG_BEFORE_EXPIRY.min(life / LATE_SHARE) {
            return Some(Level::Wrong);
        }
        (left < NOTE_BEFORE_EXPIRY.min(life / EARLY_SHARE)).then_some(Level::Note)
    }
}

impl Health {
    /// Adds a certificate, and a finding if it expires soon. `next` renews it.
    pub fn add_certificate(&mut self, one: CertificateEnd, now: Timestamp, next: &str) {
        if let Some(level) = one.level(now) {
            self.add(Check::Certificates, level, one.to_string(), next);
        }
        self.certificates.push(one);
    }
}

impl fmt::Display for CertificateEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            role,
            subject,
            not_after,
            days,
            ..
        } = self;
        match days {
            ..0 => write!(f, "{role} {subject}: ended at {not_after}"),
            0 => write!(f, "{role} {subject}: ends within a day, at {not_after}"),
            1 => write!(f, "{role} {subject}: ends in 1 day"),
            days => write!(f, "{role} {subject}: ends in {days} days"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(life_days: i64, left_hours: i64) -> Option<(Level, String)> {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let end = now + SignedDuration::from_hours(left_hours);
        let begin = end - SignedDuration::from_hours(life_days * 24);
        let mut health = Health::default();
        let one = CertificateEnd::new("root", "O=cluster.local".to_owned(), [begin, end], now);
        health.add_certificate(one, now, "navarch ca rotate");
        assert_eq!(health.certificates.len(), 1, "it is listed in any case");
        health
            .findings
            .pop()
            .map(|finding| (finding.level, finding.what))
    }

    #[test]
    fn certificate_expiry_is_reported_relative_to_its_lifetime() {
        assert_eq!(reported(3650, 31 * 24), None);
        let near = "root O=cluster.local: ends in 29 days".to_owned();
        assert_eq!(reported(3650, 29 * 24), Some((Level::Note, near)));
        assert_eq!(reported(3650, 6 * 24).unwrap().0, Level::Wrong);
        // Navarch's own lasts ten days, and is renewed at half of them.
        assert_eq!(reported(10, 5 * 24), None);
        assert_eq!(reported(10, 40).unwrap().0, Level::Note);
        assert_eq!(
            reported(10, 20),
            Some((
                Level::Wrong,
                "root O=cluster.local: ends within a day, at 2026-06-01T20:00:00Z".to_owned()
            ))
        );
        let over = "root O=cluster.local: ended at 2026-05-31T23:00:00Z".to_owned();
        assert_eq!(reported(10, -1), Some((Level::Wrong, over)));
    }
}
