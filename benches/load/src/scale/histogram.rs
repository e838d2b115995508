//! A histogram of times that any number of tasks add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::units::millis;

/// Buckets of each power of two, so that a percentile is at most 1.6 % above the value.
const PARTS: u64 = 64;
/// The binary logarithm of [`PARTS`].
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Buckets up to 2^40 microseconds, or twelve days.
const BUCKETS: usize = 64 * 36;

/// Numbers of times by their length in microseconds.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Box<[AtomicU64]>,
    longest: AtomicU64,
}

/// The distribution of times, in milliseconds; all 0 without times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Percentiles {
    /// The number of times.
    pub(super) count: u64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) longest: f64,
}

/// The index of the bucket of a value.
fn index(value: u64) -> usize {
    let exponent = u64::BITS - value.leading_zeros();
    let index = match exponent.checked_sub(PART_BITS + 1) {
        None => value,
        Some(shift) => u64::from(shift) * PARTS + (value >> shift),
    };
    usize::try_from(index)
        .unwrap_or(usize::MAX)
        .min(BUCKETS - 1)
}

/// The largest value in a bucket.
fn largest(index: usize) -> u64 {
    let index = u64::try_from(index).unwrap_or(u64::MAX);
    match (index / PARTS).checked_sub(1) {
        None | Some(0) => index,
        Some(shift) => ((index % PARTS + PARTS + 1) << shift) - 1,
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            longest: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Adds a time.
    pub(super) fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(index(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        if micros > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(micros, Ordering::Relaxed);
        }
    }

    /// The distribution so far, by nearest rank.
    pub(super) fn percentiles(&self) -> Percentiles {
        let load = |bucket: &AtomicU64| bucket.load(Ordering::Relaxed);
        let buckets: Vec<u64> = self.buckets.iter().map(load).collect();
        let count = buckets.iter().sum::<u64>();
        let longest = load(&self.longest);

        let at = |per_mille: u64| {
            let rank = (count * per_mille).div_ceil(1000).max(1);
            let mut seen = 0;
            let place = buckets.iter().position(|bucket| {
                seen += bucket;
                seen >= rank
            });
            let micros = place.map_or(0, largest).min(longest);
            millis(Duration::from_micros(micros))
        };

        Percentiles {
            count,
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            longest: millis(Duration::from_micros(longest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_adjacent_and_narrow() {
        let mut next = 0;
        for bucket in 0..BUCKETS - 1 {
            let last = largest(bucket);
            assert_eq!(index(next), bucket);
            assert_eq!(index(last), bucket);
            assert!(last - next <= next / 64, "{next} to {last}");
            next = last + 1;
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_of_nearest_rank() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentiles(), Percentiles::default());
        for micros in 1..=50 {
            histogram.add(Duration::from_micros(micros));
        }
        histogram.add(Duration::from_secs(3));

        let found = histogram.percentiles();
        assert_eq!(found.count, 51);
        assert_eq!(found.p50, millis(Duration::from_micros(26)));
        assert_eq!(found.p90, millis(Duration::from_micros(46)));
        assert_eq!(found.p99, 3000.0, "no longer than the longest");
        assert_eq!(found.longest, 3000.0);
    }
}
