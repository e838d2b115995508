//! Histograms with Envoy's buckets.

/// Upper bounds: Envoy's defaults.
pub(super) const BOUNDS: [f64; 19] = [
    0.5,
    1.0,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1000.0,
    2500.0,
    5000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    300_000.0,
    600_000.0,
    1_800_000.0,
    3_600_000.0,
];

/// The observed values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    /// Values per bucket, not cumulative.
    buckets: [u64; BOUNDS.len()],
    pub(super) sum: u64,
    pub(super) count: u64,
}

impl Histogram {
    pub(super) fn observe(&mut self, value: u64) {
        let place = BOUNDS.partition_point(|bound| *bound < value as f64);
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// Each bound with the number of values up to it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut sum = 0;
        BOUNDS
            .into_iter()
            .zip(self.buckets)
            .map(move |(bound, count)| {
                sum += count;
                (bound, sum)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_equal_to_a_bound_is_in_its_bucket() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 5, 6, 3_600_001] {
            histogram.observe(value);
        }
        let first: Vec<_> = histogram.cumulative().take(4).collect();
        assert_eq!(first, [(0.5, 1), (1.0, 2), (5.0, 4), (10.0, 5)]);
        assert_eq!(
            (histogram.cumulative().last(), histogram.count),
            (Some((3_600_000.0, 5)), 6)
        );
    }
}
