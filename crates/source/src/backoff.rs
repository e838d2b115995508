//! How long to wait before trying again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(50);

/// The longest wait: an API server that is back is found so soon, and one that is down is asked so seldom.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Waits that double up to a limit, each varied by chance, so that many who failed at once do not come back at once.
#[derive(Debug)]
pub(super) struct Backoff {
    /// Failures since the last success.
    failures: u32,
    /// State of the source of chance.
    chance: u64,
}

impl Backoff {
    /// No failure so far.
    pub(super) fn new() -> Self {
        Self { failures: 0, chance: RandomState::new().build_hasher().finish() | 1 }
    }

    /// It went well.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Another failure: how long to wait, at least `least`.
    pub(super) fn next(&mut self, least: Duration) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        least + self.vary(wait)
    }

    /// Between half and one and a half of a span.
    pub(super) fn vary(&mut self, span: Duration) -> Duration {
        // xorshift64: chance enough to spread callers.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let share = u32::try_from(self.chance % 1000).unwrap_or_default();
        span / 2 + span * share / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_start_anew_after_success() {
        let mut backoff = Backoff::new();
        let near = |wait: Duration, middle: Duration| wait >= middle / 2 && wait <= middle * 3 / 2;
        assert!(near(backoff.next(Duration::ZERO), FIRST));
        assert!(near(backoff.next(Duration::ZERO), FIRST * 2));
        for _ in 0..100 {
            backoff.next(Duration::ZERO);
        }
        assert!(near(backoff.next(Duration::ZERO), MAX_DELAY));
        backoff.reset();
        assert!(backoff.next(Duration::from_secs(3)) >= Duration::from_secs(3), "as the server asks");
    }
}
