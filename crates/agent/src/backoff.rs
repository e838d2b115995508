//! Waits between attempts: each about twice the one before, none the same on two machines.

use std::time::Duration;

use super::random;

/// The first wait.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The longest wait, as Istio's.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The state of a row of attempts.
#[derive(Clone, Debug)]
pub struct Backoff {
    /// The first wait.
    first: Duration,
    longest: Duration,
    /// The next, without its jitter.
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(FIRST_DELAY, MAX_DELAY)
    }
}

impl Backoff {
    /// From `first` up to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// How long to wait now: half to one and a half of what the row says.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.5 + random::unit());
        self.next = self.next.saturating_mul(2).min(self.longest);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(400));
        for expected in [100, 200, 400, 400] {
            let wait = backoff.wait();
            let expected = Duration::from_millis(expected);
            assert!(wait >= expected / 2 && wait <= expected * 3 / 2, "{wait:?} for {expected:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= Duration::from_millis(150));
    }
}
