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

/// A push, by what the pause after it depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    pub(super) took: Duration,
    /// Number of changes, with those that had no effect.
    pub(super) changes: usize,
    /// Number of facts that they changed.
    pub(super) facts: usize,
    /// Whether subscriptions were left unanswered. The thread answers them between pushes.
    pub(super) has_work: bool,
}

impl Pushed {
    /// The pause after it.
    pub(super) fn pause(self) -> Duration {
        // Changes without an effect cost nothing: they must not make the others look cheap.
        let changes = self.changes.min(self.facts).max(1);
        let of_each = self.took / u32::try_from(changes).unwrap_or(u32::MAX);
        let max_rest = match self.has_work {
            true => MAX_PAUSE,
            false => MAX_REST,
        };

        of_each
            .saturating_mul(PAUSE_FACTOR)
            .max(self.took.min(max_rest))
            .min(MAX_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A push of changes that each change a fact, while nobody waits for an answer.
    fn pushed(took: Duration, changes: usize) -> Pushed {
        Pushed {
            took,
            changes,
            facts: changes,
            has_work: false,
        }
    }

    fn after(took: Duration, changes: usize) -> Duration {
        pushed(took, changes).pause()
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

    #[test]
    fn changes_without_an_effect_do_not_shorten_the_pause() {
        let beside_400 = Pushed {
            facts: 4,
            ..pushed(millis(60), 404)
        };
        assert_eq!(beside_400.pause(), after(millis(60), 4));
    }

    #[test]
    fn while_subscriptions_wait_pushes_leave_them_half_of_the_time() {
        let busy = |took: Duration| Pushed {
            has_work: true,
            ..pushed(took, 400)
        };
        assert_eq!(busy(millis(60)).pause(), millis(60));
        assert_eq!(busy(millis(3_000)).pause(), MAX_PAUSE);
    }
}
