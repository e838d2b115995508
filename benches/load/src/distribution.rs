//! Percentiles of measured values, all by nearest rank; of two middle values the median is the
//! upper one.

use std::time::Duration;

use serde::Serialize;

use crate::units::millis;

/// The index of a percentile among a number of sorted values.
fn index(count: usize, percent: usize) -> usize {
    (count.saturating_sub(1) * percent).div_ceil(100)
}

/// The median; NaN without values.
pub(crate) fn median(values: Vec<f64>) -> f64 {
    Middle::of(values).median
}

/// The median of some values and their extremes; NaN without values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Middle {
    /// Of values in any order.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent| {
            let value = values.get(index(values.len(), percent));
            value.copied().unwrap_or(f64::NAN)
        };
        Self {
            median: at(50),
            least: at(0),
            most: at(100),
        }
    }
}

/// The distribution of some times, in milliseconds; all 0 without times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The number of times.
    pub(crate) count: usize,
    pub(crate) first: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) last: f64,
}

impl Spread {
    /// Of sorted times.
    pub(crate) fn of(times: &[Duration]) -> Self {
        let at = |percent| {
            let time = times.get(index(times.len(), percent));
            time.map_or(0.0, |time| millis(*time))
        };
        Self {
            count: times.len(),
            first: at(0),
            p50: at(50),
            p99: at(99),
            last: at(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_nearest_rank_percentiles() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        let spread = Spread::of(&times);
        assert_eq!((spread.count, spread.first, spread.last), (200, 1.0, 200.0));
        assert_eq!((spread.p50, spread.p99), (101.0, 199.0));
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn the_median_is_a_value_and_the_upper_of_two() {
        let middle = Middle::of(vec![3.0, 1.0, 2.0]);
        let expected = Middle {
            median: 2.0,
            least: 1.0,
            most: 3.0,
        };
        assert_eq!(middle, expected);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 3.0);
        assert!(median(Vec::new()).is_nan());
    }
}
