//! A deadline by the wall clock, for what ends at a date: certificates.
//!
//! Timers count the time that the machine runs. While it is suspended they stand still, and a
//! change of the date does not move them, so a certificate could expire before its renewal.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// How often the wall clock is read: how much later than the deadline a jump is noticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// A point in time by the wall clock and by the machine's running time. It has passed when it has
/// by either: a date that is set back must not postpone it.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    running: Instant,
    wall: SystemTime,
}

impl Deadline {
    /// The deadline in `wait`, `now` being the time by the wall clock.
    #[must_use]
    pub fn after(wait: Duration, now: SystemTime) -> Self {
        Self {
            running: Instant::now() + wait,
            wall: now + wait,
        }
    }

    /// Waits until the deadline has passed; at once if it already has. Can be dropped and called
    /// again.
    pub async fn passed(self, clock: impl Fn() -> SystemTime) {
        self.passed_by(clock, CHECK_INTERVAL).await;
    }

    /// As [`Self::passed`], reading the wall clock at this interval.
    async fn passed_by(self, clock: impl Fn() -> SystemTime, interval: Duration) {
        while Instant::now() < self.running && clock() < self.wall {
            let next = Instant::now() + interval;
            tokio::time::sleep_until(next.min(self.running)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);
    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_deadline_passes_by_the_running_time() {
        let now = SystemTime::UNIX_EPOCH;
        let began = Instant::now();
        Deadline::after(SHORT, now).passed(|| now).await;
        assert!(began.elapsed() >= SHORT);

        // The same with a date that was set back.
        let later = SystemTime::UNIX_EPOCH + HOUR;
        Deadline::after(SHORT, later).passed(|| now).await;
    }

    #[tokio::test]
    async fn a_jump_of_the_wall_clock_is_noticed() {
        let now = SystemTime::UNIX_EPOCH;
        let deadline = Deadline::after(HOUR, now);
        let waits = deadline.passed_by(|| now, SHORT);
        assert!(tokio::time::timeout(4 * SHORT, waits).await.is_err());

        let reads = std::cell::Cell::new(0);
        let jumps = || {
            reads.set(reads.get() + 1);
            if reads.get() < 3 { now } else { now + HOUR }
        };
        deadline.passed_by(jumps, SHORT).await;
        assert_eq!(reads.get(), 3);
    }
}
