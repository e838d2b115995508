//! Schedules status writes: at once, but with growing delays for an object whose status keeps
//! changing. A Gateway's route count changes with each attached route; writing it each time would
//! take as many requests as the routes' own statuses, and delay those because of the API server's
//! rate limit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use navarch_api::object::ObjectRef;
use navarch_net::backoff::exponential;

/// First delay after a write of an object.
const MIN_PAUSE: Duration = Duration::from_millis(25);
/// Maximum delay.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// First delay after a failed write, doubled with each further one.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum delay after failures.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The queue of objects.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub(super) due: BTreeSet<ObjectRef>,
    /// Recently written objects.
    written: BTreeMap<ObjectRef, LastWrite>,
    /// Delayed objects, by the end of their delay.
    later: BTreeSet<(Instant, ObjectRef)>,
    /// When `written` was last cleaned up.
    cleaned_up: Option<Instant>,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// It succeeded.
    Written,
    /// The object has changed. Its watch reports the new version.
    Conflict,
    /// It failed and must be retried.
    Failed,
}

/// The write history of an object.
#[derive(Clone, Copy, Debug)]
struct LastWrite {
    /// When the last write began.
    at: Instant,
    /// Delay of the next write from then.
    pause: Duration,
    is_under_way: bool,
    /// Whether it is due again when the current write ends.
    is_due: bool,
    /// Whether the next write is not delayed.
    skips_pause: bool,
    /// Number of consecutive conflicts.
    conflicts: u32,
    /// Number of consecutive failures.
    failures: u32,
}

impl LastWrite {
    /// When the object may be written again.
    fn writable_at(&self) -> Instant {
        if self.skips_pause {
            self.at
        } else {
            self.at + self.pause
        }
    }

    /// When its history is dropped.
    fn expires_at(&self) -> Instant {
        self.at + self.pause.max(self.retry_delay()) * 3
    }

    /// The retry delay after a failure.
    fn retry_delay(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            some => exponential(MIN_RETRY_DELAY, MAX_RETRY_DELAY, some - 1),
        }
    }
}

impl Pace {
    /// The next due object.
    pub(super) fn next(&mut self, now: Instant) -> Option<ObjectRef> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
            && let Some((_, object)) = self.later.pop_first()
        {
            self.due.insert(object);
        }

        while let Some(object) = self.due.pop_first() {
            match self.written.get_mut(&object) {
                Some(written) if written.is_under_way => written.is_due = true,
                Some(written) if written.writable_at() > now => {
                    _ = self.later.insert((written.writable_at(), object))
                }
                Some(_) | None => return Some(object),
            }
        }

        None
    }

    /// A write begins.
    pub(super) fn begin(&mut self, object: ObjectRef, now: Instant) {
        if self
            .cleaned_up
            .is_none_or(|cleaned_up| cleaned_up + MAX_PAUSE * 3 < now)
        {
            self.written
                .retain(|_, written| written.is_under_way || written.expires_at() > now);
            self.cleaned_up = Some(now);
        }

        let before = self
            .written
            .get(&object)
            .filter(|written| written.expires_at() > now);
        let pause = before.map_or(MIN_PAUSE, |written| {
            if written.skips_pause {
                written.pause
            } else {
                (written.pause * 2).min(MAX_PAUSE)
            }
        });

        let begun = LastWrite {
            at: now,
            pause,
            is_under_way: true,
            is_due: false,
            skips_pause: false,
            conflicts: before.map_or(0, |written| written.conflicts),
            failures: before.map_or(0, |written| written.failures),
        };

        self.written.insert(object, begun);
    }

    /// A write has ended.
    pub(super) fn end(&mut self, object: ObjectRef, outcome: WriteOutcome, now: Instant) {
        let Some(written) = self.written.get_mut(&object) else {
            return;
        };

        written.is_under_way = false;

        match outcome {
            WriteOutcome::Written => {
                written.conflicts = 0;
                written.failures = 0;
            }
            WriteOutcome::Conflict => {
                // Nothing was written, but a writer that conflicts with every write must not cause
                // a write each time.
                written.skips_pause = written.conflicts == 0;
                written.conflicts = written.conflicts.saturating_add(1);
            }
            WriteOutcome::Failed => {
                written.failures = written.failures.saturating_add(1);
                self.later
                    .insert((now + written.retry_delay(), object.clone()));
            }
        }

        if std::mem::take(&mut written.is_due) {
            self.due.insert(object);
        }
    }

    /// Waits until a delayed object is due; forever if there is none.
    pub(super) async fn sleep(&self) {
        match self.later.first() {
            Some((at, _)) => sleep_until(*at).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::object::{Kind, NamespacedName};

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            kind: Kind::HttpRoute,
            name: NamespacedName::new("edge", name),
        }
    }

    /// How often an object that is due every millisecond is written within a number of
    /// milliseconds, given this outcome.
    fn writes(milliseconds: u64, outcome: WriteOutcome) -> usize {
        let mut pace = Pace::default();
        let begun = Instant::now();
        let one = object("one");
        let mut count = 0;
        for passed in 0..milliseconds {
            let now = begun + Duration::from_millis(passed);
            pace.due.insert(one.clone());
            if pace.next(now).is_some() {
                pace.begin(one.clone(), now);
                pace.end(one.clone(), outcome, now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn a_frequently_changing_object_is_written_with_backoff() {
        assert_eq!(writes(1, WriteOutcome::Written), 1, "the first at once");
        assert_eq!(writes(30, WriteOutcome::Written), 2, "the second soon");
        assert_eq!(
            writes(10_000, WriteOutcome::Written),
            15,
            "at 0, 25, 75, 175, 375, 775 and 1,575 ms, and then each second"
        );
    }

    #[test]
    fn conflicting_writes_are_retried_at_once_a_few_times() {
        assert_eq!(writes(2, WriteOutcome::Conflict), 2);
        assert_eq!(writes(20, WriteOutcome::Conflict), 2);
        assert_eq!(writes(10_000, WriteOutcome::Conflict), 16);
    }

    #[test]
    fn failed_writes_are_retried_with_backoff() {
        let mut pace = Pace::default();
        let begun = Instant::now();
        let one = object("one");
        pace.due.insert(one.clone());
        let mut tried = Vec::new();

        for second in 0..300_u64 {
            let now = begun + Duration::from_secs(second);
            if pace.next(now).is_some() {
                pace.begin(one.clone(), now);
                pace.end(one.clone(), WriteOutcome::Failed, now);
                tried.push(second);
            }
        }

        assert_eq!(tried, [0, 1, 2, 4, 8, 16, 32, 64, 124, 184, 244]);

        // Once it is written nothing is left to do.
        let now = begun + Duration::from_secs(400);
        assert_eq!(pace.next(now), Some(one.clone()));
        pace.begin(one.clone(), now);
        pace.end(one, WriteOutcome::Written, now);
        assert_eq!(pace.next(now + MAX_RETRY_DELAY), None);
    }

    #[test]
    fn changes_during_a_write_are_written_next_without_delaying_others() {
        let mut pace = Pace::default();
        let begun = Instant::now();
        pace.due.extend([object("one"), object("two")]);
        assert_eq!(pace.next(begun), Some(object("one")));
        pace.begin(object("one"), begun);
        assert_eq!(pace.next(begun), Some(object("two")));
        pace.due.insert(object("one"));
        assert_eq!(pace.next(begun), None, "it is under way");

        pace.end(object("one"), WriteOutcome::Written, begun);
        assert_eq!(pace.next(begun), None, "it was written only now");
        assert_eq!(pace.next(begun + MIN_PAUSE), Some(object("one")));
        assert_eq!(pace.next(begun + MIN_PAUSE), None);

        // After a rest it counts as new.
        pace.begin(object("one"), begun + MIN_PAUSE);
        pace.end(object("one"), WriteOutcome::Written, begun + MIN_PAUSE);
        let later = begun + MAX_PAUSE * 4;
        pace.begin(object("one"), later);
        assert_eq!(
            pace.written
                .get(&object("one"))
                .map(|written| written.pause),
            Some(MIN_PAUSE)
        );
    }
}
