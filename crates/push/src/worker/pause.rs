//! How long changes are debounced after a push.
//!
//! What waits for the next push is pushed together: of changes that affect the same proxies each
//! but the first then costs little. Changes that have nothing in common cost the same together and
//! one by one, so that waiting for more of them delays proxies and saves nothing. The cost of a
//! change in the last push tells the two apart.

use std::time::Duration;

/// The pause as a multiple of what each change of the push took.
const PAUSE_FACTOR: u32 = 4;
/// The longest pause: the time that istiod waits before any push.
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// Up to this time the pause is no shorter than the push, which leaves half of the time to the
/// threads that send.
const MAX_REST: Duration = Duration::from_millis(10);

/// The pause after a push that took this time for this number of changes.
pub(super) fn after(took: Duration, changes: usize) -> Duration {
    let changes = u32::try_from(changes.max(1)).unwrap_or(u32::MAX);
    let of_each = took / changes;

    of_each
        .saturating_mul(PAUSE_FACTOR)
        .max(took.min(MAX_REST))
        .min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn single_changes_are_pushed_in_a_fifth_of_the_time_and_the_pause_is_bounded() {
        assert_eq!(after(Duration::ZERO, 1), Duration::ZERO);
        assert_eq!(after(millis(2), 1), millis(8));
        assert_eq!(after(millis(3_000), 1), MAX_PAUSE);
    }

    #[test]
    fn many_small_changes_wait_as_long_as_the_push_took_or_less() {
        assert_eq!(after(millis(2), 100), millis(2));
        assert_eq!(after(millis(60), 400), MAX_REST);
    }

    #[test]
    fn a_push_of_few_changes_that_are_expensive_is_followed_by_a_pause_of_their_cost() {
        assert_eq!(after(millis(60), 4), millis(60));
        assert_eq!(after(millis(60), 0), MAX_PAUSE);
    }
}
