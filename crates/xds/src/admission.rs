//! How many streams may begin per second (`PILOT_MAX_REQUESTS_PER_SECOND`).

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum time that a stream waits for admission before it is rejected, as in istiod.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time per stream: a hundred years. Rates that are smaller admit one stream, as in
/// istiod, and no time that is computed with it overflows.
const MAX_INTERVAL: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// A token bucket with one token: at most one stream per interval, in order of arrival.
#[derive(Debug)]
pub(super) struct Admission {
    /// Time per stream; `None` is no limit.
    interval: Option<Duration>,
    /// When the next stream may begin.
    next: Mutex<Option<Instant>>,
}

/// The stream would wait for longer than the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueTimeout;

impl Admission {
    /// Admits `per_second` streams per second; without limit if it is not positive.
    pub(super) fn new(per_second: f64) -> Self {
        let interval = (per_second > 0.0).then(|| {
            // It fails only if the interval is too long for the type.
            Duration::try_from_secs_f64(1.0 / per_second)
                .map_or(MAX_INTERVAL, |interval| interval.min(MAX_INTERVAL))
        });

        Self {
            interval,
            next: Mutex::new(None),
        }
    }

    /// When a stream that arrived at `now` may begin.
    ///
    /// # Errors
    /// If the stream would have to wait for too long. It then uses no token.
    pub(super) fn admit(&self, now: Instant) -> Result<Instant, QueueTimeout> {
        let Some(interval) = self.interval else {
            return Ok(now);
        };
        let mut next = self.next.lock();
        let begin = next.map_or(now, |next| next.max(now));
        if begin > now + QUEUE_TIMEOUT {
            return Err(QueueTimeout);
        }
        *next = Some(begin + interval);
        Ok(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_wait_in_a_queue_and_are_rejected_when_it_is_full() {
        let admission = Admission::new(2.0);
        let now = Instant::now();
        let half = Duration::from_millis(500);
        let begins: Vec<Result<Instant, QueueTimeout>> =
            (0..4).map(|_| admission.admit(now)).collect();
        assert_eq!(
            begins,
            [
                Ok(now),
                Ok(now + half),
                Ok(now + 2 * half),
                Err(QueueTimeout)
            ]
        );
        assert_eq!(admission.admit(now + 4 * half), Ok(now + 4 * half));
    }

    #[test]
    fn a_rate_of_almost_zero_admits_one_stream() {
        for per_second in [1e-18, 1e-20, 1e-300, f64::MIN_POSITIVE / 2.0] {
            let admission = Admission::new(per_second);
            let now = Instant::now();
            assert_eq!(admission.admit(now), Ok(now), "{per_second}");
            assert_eq!(admission.admit(now), Err(QueueTimeout), "{per_second}");

            let later = now + Duration::from_secs(365 * 24 * 3_600);
            assert_eq!(admission.admit(later), Err(QueueTimeout), "{per_second}");
        }
    }

    #[test]
    fn no_limit_lets_all_in() {
        let admission = Admission::new(0.0);
        let now = Instant::now();
        assert!((0..1000).all(|_| admission.admit(now) == Ok(now)));
    }
}
