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
    swept: Option<Instant>,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// It succeeded.
    Taken,
    /// A conflict: the object has changed. Its watch reports the new version.
    Overtaken,
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
    may_at_once: bool,
    /// Number of consecutive conflicts.
    overtaken: u32,
    /// Number of consecutive failures.
    failed: u32,
}

impl LastWrite {
    /// When the object may be written again.
    fn free(&self) -> Instant {
        if self.may_at_once {
            self.at
        } else {
            self.at + self.pause
        }
    }

    /// When its history is dropped.
    fn forgotten(&self) -> Instant {
        self.at + self.pause.max(self.again()) * 3
    }

    /// The retry delay after a failure.
    fn again(&self) -> Duration {
        match self.failed {
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
                Some(written) if written.free() > now => {
                    _ = self.later.insert((written.free(), object))
                }
                Some(_) | None => return Some(object),
            }
        }
        None
    }

    /// A write begins.
    pub(super) fn is_begun(&mut self, object: ObjectRef, now: Instant) {
        if self.swept.is_none_or(|swept| swept + MAX_PAUSE * 3 < now) {
            self.written
                .retain(|_, written| written.is_under_way || written.forgotten() > now);
            self.swept = Some(now);
        }

        let before = self
            .written
            .get(&object)
            .filter(|written| written.forgotten() > now);
        let pause = before.map_or(MIN_PAUSE, |written| {
            if written.may_at_once {
                written.pause
            } else {
                (written.pause * 2).min(MAX_PAUSE)
            }
        });

        let (overtaken, failed) =
            before.map_or((0, 0), |written| (written.overtaken, written.failed));
        let begun = LastWrite {
            at: now,
            pause,
            is_under_way: true,
            is_due: false,
            may_at_once: false,
            overtaken,
            failed,
        };

        self.written.insert(object, begun);
    }

    /// A write has ended.
    pub(super) fn is_written(&mut self, object: ObjectRef, outcome: WriteOutcome, now: Instant) {
        let Some(written) = self.written.get_mut(&object) else {
            return;
        };

        written.is_under_way = false;

        match outcome {
            WriteOutcome::Taken => (written.overtaken, written.failed) = (0, 0),
            WriteOutcome::Overtaken => {
                // Nothing was written, but a writer that conflicts with every write must not cause
                // a write each time.
                written.may_at_once = written.overtaken == 0;
                written.overtaken = written.overtaken.saturating_add(1);
            }
            WriteOutcome::Failed => {
                written.failed = written.failed.saturating_add(1);
                self.later.insert((now + written.again(), object.clone()));
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
                pace.is_begun(one.clone(), now);
                pace.is_written(one.clone(), outcome, now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn a_frequently_changing_object_is_written_with_backoff() {
        assert_eq!(writes(1, WriteOutcome::Taken), 1, "the first at once");
        assert_eq!(writes(30, WriteOutcome::Taken), 2, "the second soon");
        assert_eq!(
            writes(10_000, WriteOutcome::Taken),
            15,
            "at 0, 25, 75, 175, 375, 775 and 1,575 ms, and then each second"
        );
    }

    #[test]
    fn conflicting_writes_are_retried_at_once_a_few_times() {
        assert_eq!(writes(2, WriteOutcome::Overtaken), 2);
        assert_eq!(writes(20, WriteOutcome::Overtaken), 2);
        assert_eq!(writes(10_000, WriteOutcome::Overtaken), 16);
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
                pace.is_begun(one.clone(), now);
                pace.is_written(one.clone(), WriteOutcome::Failed, now);
                tried.push(second);
            }
        }

        assert_eq!(tried, [0, 1, 2, 4, 8, 16, 32, 64, 124, 184, 244]);

        // Once it is taken nothing is left to do.
        let now = begun + Duration::from_secs(400);
        assert_eq!(pace.next(now), Some(one.clone()));
        pace.is_begun(one.clone(), now);
        pace.is_written(one, WriteOutcome::Taken, now);
        assert_eq!(pace.next(now + MAX_RETRY_DELAY), None);
    }

    #[test]
    fn changes_during_a_write_are_written_next_without_delaying_others() {
        let mut pace = Pace::default();
        let begun = Instant::now();
        pace.due.extend([object("one"), object("two")]);
        assert_eq!(pace.next(begun), Some(object("one")));
        pace.is_begun(object("one"), begun);
        assert_eq!(pace.next(begun), Some(object("two")));
        pace.due.insert(object("one"));
        assert_eq!(pace.next(begun), None, "it is under way");

        pace.is_written(object("one"), WriteOutcome::Taken, begun);
        assert_eq!(pace.next(begun), None, "it was written only now");
        assert_eq!(pace.next(begun + MIN_PAUSE), Some(object("one")));
        assert_eq!(pace.next(begun + MIN_PAUSE), None);

        // After a rest it counts as new.
        pace.is_begun(object("one"), begun + MIN_PAUSE);
        pace.is_written(object("one"), WriteOutcome::Taken, begun + MIN_PAUSE);
        let later = begun + MAX_PAUSE * 4;
        pace.is_begun(object("one"), later);
        assert_eq!(
            pace.written
                .get(&object("one"))
                .map(|written| written.pause),
            Some(MIN_PAUSE)
        );
    }
}
