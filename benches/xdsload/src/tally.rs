//! What all proxies together have seen, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use memchr::memmem::Finder;
use serde::Serialize;
use tokio::time::Instant;

use crate::kind::Kind;

/// Counters of one kind, which are counted up together.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counters {
    responses: AtomicU64,
    /// Resources in them.
    resources: AtomicU64,
    /// Names taken away.
    removed: AtomicU64,
    /// Bytes of the responses.
    bytes: AtomicU64,
}

/// Counters of one kind at one moment, or what came between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) responses: u64,
    /// Resources in them.
    pub(crate) resources: u64,
    /// Names taken away.
    pub(crate) removed: u64,
    /// Bytes of the responses.
    pub(crate) bytes: u64,
}

/// Counters of all kinds, by [`Kind::index`].
pub(crate) type Counts = [Count; 5];

/// A text that a change leaves in a resource, and when each proxy got it.
#[derive(Debug)]
pub(crate) struct Marker {
    /// The kind of the resource; none means any.
    kinds: Vec<Kind>,
    finder: Finder<'static>,
    /// Nanoseconds since the start of the tally at which each proxy had it; 0 until then.
    arrived: Vec<AtomicU64>,
    /// Proxies that have it.
    count: AtomicUsize,
}

/// What all proxies have seen.
#[derive(Debug)]
pub(crate) struct Tally {
    /// When it began.
    start: Instant,
    /// By kind.
    counters: [Counters; 5],
    /// The text that is looked for.
    marker: ArcSwapOption<Marker>,
    /// When each proxy was in sync; 0 until then.
    synced: Vec<AtomicU64>,
    /// Proxies in sync.
    in_sync: AtomicUsize,
    /// Streams that ended without being told to.
    broken: AtomicU64,
    /// Responses of kinds that nobody asked for.
    strange: AtomicU64,
}

impl Tally {
    /// A tally of so many proxies.
    pub(crate) fn new(proxies: usize) -> Self {
        Self {
            start: Instant::now(),
            counters: Default::default(),
            marker: ArcSwapOption::empty(),
            synced: (0..proxies).map(|_| AtomicU64::new(0)).collect(),
            in_sync: AtomicUsize::new(0),
            broken: AtomicU64::new(0),
            strange: AtomicU64::new(0),
        }
    }

    /// Nanoseconds since the beginning, never 0.
    fn now(&self) -> u64 {
        moment(self.start)
    }

    /// A response came just now; `body` is all of it.
    pub(crate) fn arrived(&self, proxy: usize, kind: Kind, body: &[u8]) {
        let marker = self.marker.load();
        let Some(marker) = marker
            .as_deref()
            .filter(|marker| marker.kinds.contains(&kind))
        else {
            return;
        };
        let Some(arrived) = marker.arrived.get(proxy) else {
            return;
        };
        if arrived.load(Ordering::Relaxed) == 0 && marker.finder.find(body).is_some() {
            arrived.store(self.now(), Ordering::Relaxed);
            marker.count.fetch_add(1, Ordering::Release);
        }
    }

    /// A response has been taken in.
    pub(crate) fn response(&self, kind: Kind, bytes: usize, resources: usize, removed: usize) {
        let Some(counters) = self.counters.get(kind.index()) else {
            return;
        };
        let add = |counter: &AtomicU64, n: usize| {
            counter.fetch_add(u64::try_from(n).unwrap_or(u64::MAX), Ordering::Relaxed);
        };
        add(&counters.responses, 1);
        add(&counters.resources, resources);
        add(&counters.bytes, bytes);
        if removed > 0 {
            add(&counters.removed, removed);
        }
    }

    /// A response of a kind that nobody asked for.
    pub(crate) fn strange(&self) {
        self.strange.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream ended by itself; whether it was the first.
    pub(crate) fn broken(&self) -> bool {
        self.broken.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// A proxy is in sync.
    pub(crate) fn synced(&self, proxy: usize) {
        let Some(synced) = self.synced.get(proxy) else {
            return;
        };
        if synced.load(Ordering::Relaxed) == 0 {
            synced.store(self.now(), Ordering::Relaxed);
            self.in_sync.fetch_add(1, Ordering::Release);
        }
    }

    /// All proxies must come into sync anew.
    pub(crate) fn reset_sync(&self) {
        for synced in &self.synced {
            synced.store(0, Ordering::Relaxed);
        }
        self.in_sync.store(0, Ordering::Release);
    }

    /// How many proxies are in sync.
    pub(crate) fn in_sync(&self) -> usize {
        self.in_sync.load(Ordering::Acquire)
    }

    /// Streams that ended by themselves, and responses that nobody asked for.
    pub(crate) fn troubles(&self) -> (u64, u64) {
        (
            self.broken.load(Ordering::Relaxed),
            self.strange.load(Ordering::Relaxed),
        )
    }

    /// Looks for a text in the next responses of some kinds.
    pub(crate) fn mark(&self, kinds: &[Kind], text: &str) -> Arc<Marker> {
        let marker = Arc::new(Marker {
            kinds: kinds.to_vec(),
            finder: Finder::new(text.as_bytes()).into_owned(),
            arrived: self.synced.iter().map(|_| AtomicU64::new(0)).collect(),
            count: AtomicUsize::new(0),
        });
        self.marker.store(Some(marker.clone()));
        marker
    }

    /// Counters so far.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (count, counters) in counts.iter_mut().zip(&self.counters) {
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            *count = Count {
                responses: load(&counters.responses),
                resources: load(&counters.resources),
                removed: load(&counters.removed),
                bytes: load(&counters.bytes),
            };
        }
        counts
    }

    /// The time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// When each proxy came into sync, counted from `since`; those that did not are left out.
    pub(crate) fn sync_times(&self, since: Duration) -> Vec<Duration> {
        times(&self.synced, since)
    }
}

impl Marker {
    /// How many proxies have it.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// When each proxy got it, counted from `since`.
    pub(crate) fn times(&self, since: Duration) -> Vec<Duration> {
        times(&self.arrived, since)
    }
}

/// Nanoseconds since a start, never 0.
pub(crate) fn moment(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// The moments that have come, counted from `since`, in order.
pub(crate) fn times(moments: &[AtomicU64], since: Duration) -> Vec<Duration> {
    let moments = moments
        .iter()
        .map(|moment| moment.load(Ordering::Relaxed))
        .filter(|moment| *moment > 0);
    let mut times: Vec<_> = moments
        .map(|moment| Duration::from_nanos(moment).saturating_sub(since))
        .collect();
    times.sort();
    times
}

/// What came between two moments.
pub(crate) fn between(before: &Counts, after: &Counts) -> Counts {
    let mut difference = *after;
    for (difference, before) in difference.iter_mut().zip(before) {
        difference.responses -= before.responses;
        difference.resources -= before.resources;
        difference.removed -= before.removed;
        difference.bytes -= before.bytes;
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_seen_once_by_each_proxy_and_only_in_its_kind() {
        let tally = Tally::new(2);
        let before = tally.counts();
        let marker = tally.mark(&[Kind::Routes], "m-1");
        tally.arrived(0, Kind::Clusters, b"..m-1..");
        tally.arrived(0, Kind::Routes, b"..m-2..");
        assert_eq!(marker.count(), 0);
        tally.arrived(1, Kind::Routes, b"..m-1..");
        tally.arrived(1, Kind::Routes, b"m-1");

        assert_eq!((marker.count(), marker.times(Duration::ZERO).len()), (1, 1));
        tally.response(Kind::Clusters, 7, 1, 0);
        tally.response(Kind::Routes, 7, 2, 1);
        tally.response(Kind::Routes, 10, 2, 0);
        let counts = between(&before, &tally.counts());
        let routes = counts[Kind::Routes.index()];
        assert_eq!(
            routes,
            Count {
                responses: 2,
                resources: 4,
                removed: 1,
                bytes: 17
            }
        );
    }

    #[test]
    fn a_proxy_is_in_sync_once() {
        let tally = Tally::new(2);
        tally.synced(1);
        tally.synced(1);
        assert_eq!(
            (tally.in_sync(), tally.sync_times(Duration::ZERO).len()),
            (1, 1)
        );
        tally.reset_sync();
        assert_eq!(
            (tally.in_sync(), tally.sync_times(Duration::ZERO).len()),
            (0, 0)
        );
    }
}
