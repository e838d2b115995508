//! The delay before an attempt is repeated.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Delays between attempts: each twice the one before, up to a maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    /// Failures since the last success.
    failures: u32,
    is_jittered: bool,
}

impl Backoff {
    /// Exact delays from `first` up to `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
            is_jittered: false,
        }
    }

    /// Delays from `first` up to `max`, each with [`jitter`]: clients that failed together do not
    /// retry together.
    #[must_use]
    pub const fn jittered(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
            is_jittered: true,
        }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = exponential(self.first, self.max, self.failures);
        self.failures = self.failures.saturating_add(1);
        if self.is_jittered {
            jitter(delay)
        } else {
            delay
        }
    }

    /// Starts again at the first delay, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// The delay after `failures` earlier ones: `first * 2^failures`, at most `max`.
#[must_use]
pub fn exponential(first: Duration, max: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(31)).min(max)
}

/// A random duration between half and one and a half of `span`.
#[must_use]
pub fn jitter(span: Duration) -> Duration {
    // Each `RandomState` has other keys: enough to spread clients.
    let random = RandomState::new().build_hasher().finish();
    let share = u32::try_from(random % 1000).unwrap_or_default();
    span / 2 + span * share / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_start_again_after_a_success() {
        let milliseconds = Duration::from_millis;
        let mut backoff = Backoff::new(milliseconds(100), milliseconds(500));
        for expected in [100, 200, 400, 500, 500] {
            assert_eq!(backoff.next_delay(), milliseconds(expected));
        }
        backoff.reset();
        assert_eq!(backoff.next_delay(), milliseconds(100));
        assert_eq!(
            exponential(milliseconds(100), Duration::MAX, u32::MAX),
            milliseconds(100) * (1 << 31)
        );
    }

    #[test]
    fn jitter_spreads_delays_around_the_exact_ones() {
        let mut backoff = Backoff::jittered(Duration::from_secs(1), Duration::from_secs(1));
        let delays: Vec<Duration> = (0..100).map(|_| backoff.next_delay()).collect();
        assert!(
            delays
                .iter()
                .all(|delay| (500..1500).contains(&delay.as_millis())),
            "{delays:?}"
        );
        assert!(delays.iter().min() < delays.iter().max(), "{delays:?}");
    }
}
