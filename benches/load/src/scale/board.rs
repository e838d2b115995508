//! Which updates each stream has received, and how long that took.
//!
//! An update counts for a stream when its address arrives, or that of a later update of the same
//! service: the endpoints of the earlier one no longer matter then, and a control plane that sends
//! only the newest is right. Such updates are superseded; their times count too, up to the arrival
//! of the later one, so that skipping updates gains nothing. Times begin when an update is due by
//! the rate of the feed, not when it is written: a control plane that does not read the feed in
//! time shows.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::histogram::Histogram;
use super::order::{Order, Place};

/// A stream's received updates, for all streams.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) order: Order,
    /// Updates per second.
    rate: f64,
    /// When the first update is due; unset before the feed begins.
    begun: OnceLock<Instant>,
    /// By stream, then by service of its namespace: one more than the newest update, or 0.
    held: Box<[AtomicU32]>,
    pub(super) times: Histogram,
    /// Pairs of an update and a stream that a later update superseded.
    superseded: AtomicU64,
    /// Resources that arrived behind a later update of their service.
    older: AtomicU64,
    /// Resources of services that the stream should not see.
    foreign: AtomicU64,
}

/// Counters of a board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Irregular {
    pub(super) superseded: u64,
    pub(super) older: u64,
    pub(super) foreign: u64,
}

/// The updates that streams hold when nothing more is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Pairs of a stream and a service whose newest update the stream does not hold.
    pub(super) pairs: u64,
    /// The number of such streams.
    pub(super) streams: u64,
}

impl Board {
    /// A board of a number of streams, which are spread over the namespaces in turn.
    pub(super) fn new(order: Order, streams: usize, rate: u32) -> Self {
        let slots = usize::try_from(order.slots).unwrap_or(usize::MAX);
        Self {
            order,
            rate: f64::from(rate),
            begun: OnceLock::new(),
            held: (0..streams * slots).map(|_| AtomicU32::new(0)).collect(),
            times: Histogram::default(),
            superseded: AtomicU64::new(0),
            older: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
        }
    }

    /// The namespace of a stream.
    pub(super) fn namespace(&self, stream: usize) -> u32 {
        let namespaces = usize::try_from(self.order.namespaces).unwrap_or(usize::MAX);
        u32::try_from(stream % namespaces.max(1)).unwrap_or(u32::MAX)
    }

    /// Begins the feed: the first update is due now.
    pub(super) fn begin(&self, now: Instant) {
        // It begins once.
        let _ = self.begun.set(now);
    }

    /// The number of updates that are due.
    pub(super) fn due(&self, now: Instant) -> u32 {
        let Some(begun) = self.begun.get() else {
            return 0;
        };
        let seconds = now.saturating_duration_since(*begun).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast from a float saturates"
        )]
        let due = (seconds * self.rate) as u32;
        due.saturating_add(1)
    }

    /// A stream has received a service with an update, or without any.
    pub(super) fn receive(&self, stream: usize, place: Place, update: Option<u32>, now: Instant) {
        let Some(held) = self.held(stream, place) else {
            self.foreign.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // Only the task of the stream's connection writes it.
        let before = held.load(Ordering::Relaxed).checked_sub(1);
        if before > update {
            self.older.fetch_add(1, Ordering::Relaxed);
        }
        held.store(update.map_or(0, |update| update + 1), Ordering::Release);

        let Some(update) = update else {
            return;
        };
        let Some(begun) = self.begun.get() else {
            return;
        };
        for new in self.order.news(place, before, update) {
            let due = *begun + Duration::from_secs_f64(f64::from(new) / self.rate);
            self.times.add(now.saturating_duration_since(due));
            if new != update {
                self.superseded.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Where the newest update of a service is noted; `None` for services of other namespaces.
    fn held(&self, stream: usize, place: Place) -> Option<&AtomicU32> {
        if place.namespace != self.namespace(stream) || place.slot >= self.order.slots {
            return None;
        }
        let slots = usize::try_from(self.order.slots).ok()?;
        self.held
            .get(stream * slots + usize::try_from(place.slot).ok()?)
    }

    /// What streams do not hold after a number of updates.
    pub(super) fn missing(&self, updates: u32) -> Missing {
        let mut missing = Missing {
            pairs: 0,
            streams: 0,
        };
        let slots = usize::try_from(self.order.slots).unwrap_or(usize::MAX);

        for (stream, held) in self.held.chunks(slots.max(1)).enumerate() {
            let namespace = self.namespace(stream);
            let is_old = |slot: u32, held: &AtomicU32| {
                let newest = self.order.newest(Place { namespace, slot }, updates);
                held.load(Ordering::Acquire).checked_sub(1) != newest
            };
            let old = (0..).zip(held).filter(|(slot, held)| is_old(*slot, held));
            let pairs = u64::try_from(old.count()).unwrap_or(u64::MAX);
            missing.pairs += pairs;
            missing.streams += u64::from(pairs > 0);
        }

        missing
    }

    /// Counters of what is not a plain update.
    pub(super) fn irregular(&self) -> Irregular {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Irregular {
            superseded: load(&self.superseded),
            older: load(&self.older),
            foreign: load(&self.foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two namespaces of one service, and three streams: 0 and 2 are of the first.
    fn board() -> Board {
        let order = Order {
            namespaces: 2,
            slots: 1,
        };
        Board::new(order, 3, 1_000)
    }

    const PLACE: Place = Place {
        namespace: 0,
        slot: 0,
    };

    #[test]
    fn superseded_updates_count_as_received_with_the_later_one_and_from_their_own_time() {
        let board = board();
        let begun = Instant::now();
        board.begin(begun);
        assert_eq!(board.due(begun), 1);
        assert_eq!(board.due(begun + Duration::from_millis(10)), 11);

        // Updates 0, 2 and 4 are of the service; they are due after 0, 2 and 4 ms.
        board.receive(0, PLACE, Some(0), begun + Duration::from_millis(1));
        board.receive(0, PLACE, Some(4), begun + Duration::from_millis(8));
        let times = board.times.percentiles();
        assert_eq!(times.count, 3);
        assert_eq!(times.longest, 6.0, "update 2");
        let expected = Irregular {
            superseded: 1,
            ..Irregular::default()
        };
        assert_eq!(board.irregular(), expected);
    }

    #[test]
    fn a_stream_without_the_newest_update_of_a_service_is_found() {
        let board = board();
        board.begin(Instant::now());
        let missing = |updates| board.missing(updates).streams;
        assert_eq!(missing(0), 0);
        assert_eq!(missing(1), 2, "streams 0 and 2");

        let other = Place {
            namespace: 1,
            slot: 0,
        };
        let now = Instant::now();
        board.receive(0, PLACE, Some(0), now);
        board.receive(2, PLACE, Some(0), now);
        assert_eq!(missing(1), 0);
        assert_eq!(missing(2), 1, "stream 1");
        board.receive(1, other, Some(1), now);
        assert_eq!(missing(2), 0);
        assert_eq!(missing(3), 2, "update 2 is of the first service");
    }

    #[test]
    fn older_and_foreign_resources_are_counted_and_an_older_one_is_what_the_stream_holds() {
        let board = board();
        let now = Instant::now();
        board.begin(now);
        board.receive(0, PLACE, Some(2), now);
        board.receive(0, PLACE, Some(0), now);
        board.receive(0, PLACE, None, now);
        board.receive(1, PLACE, Some(0), now);
        let irregular = board.irregular();
        assert_eq!(irregular.older, 2);
        assert_eq!(irregular.foreign, 1);
        assert_eq!(board.missing(3).streams, 3);
    }
}
