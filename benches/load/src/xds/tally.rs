//! What all proxies together have received, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use memchr::memmem::Finder;
use serde::Serialize;
use tokio::time::Instant;

use crate::xds::resource_type::ResourceType;

/// The counters of one type, which are incremented together.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counters {
    responses: AtomicU64,
    /// Resources in them.
    resources: AtomicU64,
    /// Removed names.
    removed: AtomicU64,
    /// Bytes of the responses.
    bytes: AtomicU64,
}

/// The counters of one type at one moment, or their increase between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) responses: u64,
    /// Resources in them.
    pub(crate) resources: u64,
    /// Removed names.
    pub(crate) removed: u64,
    /// Bytes of the responses.
    pub(crate) bytes: u64,
}

/// The counters of all types, by [`ResourceType::index`].
pub(crate) type Counts = [Count; 5];

/// A text that a change puts into a resource, and when each proxy received it.
#[derive(Debug)]
pub(crate) struct Marker {
    /// The types whose responses are searched.
    resource_types: Vec<ResourceType>,
    finder: Finder<'static>,
    /// Nanoseconds from the start of the tally until each proxy received it; 0 until then.
    arrived: Vec<AtomicU64>,
    /// Proxies that have received it.
    count: AtomicUsize,
}

/// What all proxies have received.
#[derive(Debug)]
pub(crate) struct Tally {
    start: Instant,
    /// By type.
    counters: [Counters; 5],
    /// The text to look for.
    marker: ArcSwapOption<Marker>,
    /// When each proxy was in sync; 0 until then.
    synced: Vec<AtomicU64>,
    /// Proxies in sync.
    in_sync: AtomicUsize,
    /// Streams that ended by themselves.
    broken: AtomicU64,
    /// Responses of types without a subscription.
    strange: AtomicU64,
}

impl Tally {
    /// A tally of a number of proxies.
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

    /// Nanoseconds since the start, never 0.
    fn now(&self) -> u64 {
        moment(self.start)
    }

    /// Looks for the marker in a response that has just arrived; `body` is the whole message.
    pub(crate) fn arrived(&self, proxy: usize, resource_type: ResourceType, body: &[u8]) {
        let marker = self.marker.load();
        let Some(marker) = marker
            .as_deref()
            .filter(|marker| marker.resource_types.contains(&resource_type))
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

    /// Counts a response after it was applied.
    pub(crate) fn response(
        &self,
        resource_type: ResourceType,
        bytes: usize,
        resources: usize,
        removed: usize,
    ) {
        let Some(counters) = self.counters.get(resource_type.index()) else {
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

    /// Counts a response of a type without a subscription.
    pub(crate) fn strange(&self) {
        self.strange.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a stream that ended by itself; returns whether it was the first.
    pub(crate) fn broken(&self) -> bool {
        self.broken.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Records that a proxy is in sync.
    pub(crate) fn synced(&self, proxy: usize) {
        let Some(synced) = self.synced.get(proxy) else {
            return;
        };
        if synced.load(Ordering::Relaxed) == 0 {
            synced.store(self.now(), Ordering::Relaxed);
            self.in_sync.fetch_add(1, Ordering::Release);
        }
    }

    /// Forgets which proxies are in sync.
    pub(crate) fn reset_sync(&self) {
        for synced in &self.synced {
            synced.store(0, Ordering::Relaxed);
        }
        self.in_sync.store(0, Ordering::Release);
    }

    /// The number of proxies in sync.
    pub(crate) fn in_sync(&self) -> usize {
        self.in_sync.load(Ordering::Acquire)
    }

    /// The number of streams that ended by themselves, and of responses without a subscription.
    pub(crate) fn troubles(&self) -> (u64, u64) {
        (
            self.broken.load(Ordering::Relaxed),
            self.strange.load(Ordering::Relaxed),
        )
    }

    /// Starts to look for a text in responses of some types.
    pub(crate) fn mark(&self, resource_types: &[ResourceType], text: &str) -> Arc<Marker> {
        let marker = Arc::new(Marker {
            resource_types: resource_types.to_vec(),
            finder: Finder::new(text.as_bytes()).into_owned(),
            arrived: self.synced.iter().map(|_| AtomicU64::new(0)).collect(),
            count: AtomicUsize::new(0),
        });
        self.marker.store(Some(marker.clone()));
        marker
    }

    /// The counters so far.
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

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// When each proxy was in sync, counted from `since`; proxies that were not are left out.
    pub(crate) fn sync_times(&self, since: Duration) -> Vec<Duration> {
        times(&self.synced, since)
    }
}

impl Marker {
    /// The number of proxies that have received it.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// When each proxy received it, counted from `since`.
    pub(crate) fn times(&self, since: Duration) -> Vec<Duration> {
        times(&self.arrived, since)
    }
}

/// Nanoseconds since a start, never 0.
fn moment(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// The moments that are set, counted from `since`, sorted.
fn times(moments: &[AtomicU64], since: Duration) -> Vec<Duration> {
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

/// The increase between two moments.
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
    fn a_marker_is_seen_once_by_each_proxy_and_only_in_its_type() {
        let tally = Tally::new(2);
        let before = tally.counts();
        let marker = tally.mark(&[ResourceType::Routes], "m-1");
        tally.arrived(0, ResourceType::Clusters, b"..m-1..");
        tally.arrived(0, ResourceType::Routes, b"..m-2..");
        assert_eq!(marker.count(), 0);
        tally.arrived(1, ResourceType::Routes, b"..m-1..");
        tally.arrived(1, ResourceType::Routes, b"m-1");

        assert_eq!((marker.count(), marker.times(Duration::ZERO).len()), (1, 1));
        tally.response(ResourceType::Clusters, 7, 1, 0);
        tally.response(ResourceType::Routes, 7, 2, 1);
        tally.response(ResourceType::Routes, 10, 2, 0);
        let counts = between(&before, &tally.counts());
        let routes = counts[ResourceType::Routes.index()];
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
