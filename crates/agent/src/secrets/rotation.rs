//! Computes when a certificate is renewed.

use std::time::{Duration, SystemTime};

/// The remaining lifetime at which a certificate is renewed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grace {
    /// `SECRET_GRACE_PERIOD_RATIO`: the remaining part of the lifetime. Default 0.5.
    pub ratio: f64,
    /// `SECRET_GRACE_PERIOD_RATIO_JITTER`: the maximum random deviation of the ratio. Default 0.01.
    pub jitter: f64,
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            ratio: 0.5,
            jitter: 0.01,
        }
    }
}

impl Grace {
    /// Time from `now` until the renewal of a certificate that was issued at `created` and expires
    /// at `ends`. `random` is between 0 and 1.
    #[must_use]
    pub fn wait(
        self,
        created: SystemTime,
        ends: SystemTime,
        now: SystemTime,
        random: f64,
    ) -> Duration {
        let ratio = (self.ratio + self.jitter * (random * 2.0 - 1.0)).clamp(0.0, 1.0);
        let life = ends.duration_since(created).unwrap_or_default();
        let due = ends - life.mul_f64(if ratio.is_nan() { 0.5 } else { ratio });
        due.duration_since(now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_leaves_the_ratio_of_the_life() {
        let created = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let ends = created + Duration::from_secs(1000);
        let wait = |ratio, jitter, passed, random| {
            let now = created + Duration::from_secs(passed);
            Grace { ratio, jitter }
                .wait(created, ends, now, random)
                .as_secs()
        };

        assert_eq!(wait(0.5, 0.0, 0, 0.9), 500);
        assert_eq!(wait(0.5, 0.0, 200, 0.9), 300);
        assert_eq!(wait(0.5, 0.0, 700, 0.9), 0, "overdue is now");
        assert_eq!(wait(0.2, 0.1, 0, 1.0), 700);
        assert_eq!(wait(0.2, 0.1, 0, 0.0), 900);
        assert_eq!(
            wait(5.0, 0.0, 0, 0.5),
            0,
            "more than the whole life is the whole"
        );

        assert_eq!(wait(0.0, 0.0, 0, 0.5), 1000);
    }
}
