//! How long changes are debounced after a push.

use std::time::Duration;

/// The pause as a multiple of the push's duration: under a flood of changes pushes take a fifth of
/// the time.
const PAUSE_FACTOR: u32 = 4;
/// The longest pause: the time that istiod waits before any push.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a push of this duration.
pub(super) fn after(took: Duration) -> Duration {
    took.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_take_a_bounded_share_of_the_time_and_the_pause_is_bounded() {
        assert_eq!(after(Duration::ZERO), Duration::ZERO);
        assert_eq!(after(Duration::from_millis(2)), Duration::from_millis(8));
        assert_eq!(after(Duration::from_secs(3)), MAX_PAUSE);
    }
}
