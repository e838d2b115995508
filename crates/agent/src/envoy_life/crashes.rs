//! How often a crashed Envoy is started again in place.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How many crashes within [`WINDOW`] are followed by a restart; one more ends the agent.
pub(super) const MAX_RESTARTS: usize = 5;
/// The time after which a crash is forgotten.
const WINDOW: Duration = Duration::from_mins(10);
/// The wait before the second restart; it doubles with each further one. The first is at once.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// The crashes of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Crashes(VecDeque<Instant>);

impl Crashes {
    /// Notes a crash. Returns how long to wait before Envoy is started again; `None` if it has
    /// crashed too often.
    pub(super) fn delay(&mut self, now: Instant) -> Option<Duration> {
        while let Some(first) = self.0.front()
            && now.saturating_duration_since(*first) > WINDOW
        {
            self.0.pop_front();
        }

        let before = self.0.len();
        if before >= MAX_RESTARTS {
            return None;
        }
        self.0.push_back(now);

        Some(match before {
            0 => Duration::ZERO,
            _ => FIRST_DELAY * 2_u32.saturating_pow(u32::try_from(before - 1).unwrap_or(u32::MAX)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_and_the_sixth_crash_of_ten_minutes_is_the_last() {
        let start = Instant::now();
        let mut crashes = Crashes::default();
        let delays: Vec<_> = (0..6)
            .map(|_| crashes.delay(start).map(|delay| delay.as_secs()))
            .collect();
        assert_eq!(delays, [Some(0), Some(1), Some(2), Some(4), Some(8), None]);

        let later = start + WINDOW + Duration::from_secs(1);
        assert_eq!(crashes.delay(later), Some(Duration::ZERO));
    }
}
