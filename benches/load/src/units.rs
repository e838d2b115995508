//! Conversions to the units of reports.

use std::time::Duration;

/// A duration in milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Memory in KiB, the unit of `/proc`, as 10^6 bytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "memory of a process is far below 2^52"
)]
pub(crate) fn megabytes(kilobytes: u64) -> f64 {
    kilobytes as f64 * 1024.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_decimal() {
        assert!((millis(Duration::from_micros(1_500)) - 1.5).abs() < 1e-9);
        assert!((megabytes(1_000) - 1.024).abs() < 1e-9);
    }
}
