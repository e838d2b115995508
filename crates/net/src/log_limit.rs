//! Rate limit of log lines that clients cause.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Minimum interval of lines; the next line has the number of suppressed ones.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides which lines of one sort are logged.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Option<Logged>>);

/// The last logged line.
#[derive(Debug)]
struct Logged {
    at: Instant,
    /// Number of lines suppressed since then.
    suppressed: u64,
}

impl LogLimit {
    /// Nothing is logged yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Counts a line. Returns the number of suppressed lines since the last one, if this one must
    /// be logged.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    /// As [`LogLimit::admit`] at a time.
    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut last = self.0.lock();
        let suppressed = match last.as_mut() {
            Some(last) if now.duration_since(last.at) < INTERVAL => {
                last.suppressed += 1;
                return None;
            }
            Some(last) => last.suppressed,
            None => 0,
        };
        *last = Some(Logged {
            at: now,
            suppressed: 0,
        });
        Some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_ten_seconds_with_the_number_of_suppressed_ones() {
        let limit = LogLimit::default();
        let now = Instant::now();
        assert_eq!(
            [
                limit.admit_at(now),
                limit.admit_at(now),
                limit.admit_at(now)
            ],
            [Some(0), None, None]
        );
        let later = now + INTERVAL;
        assert_eq!(
            [limit.admit_at(later), limit.admit_at(later)],
            [Some(2), None]
        );
    }
}
