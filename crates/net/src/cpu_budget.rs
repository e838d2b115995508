//! A share of CPU time for work that clients can cause.

use std::time::Duration;

use tokio::time::Instant;

/// CPU time that may be used at once after an idle time, and a share of a core in the long run.
#[derive(Clone, Copy, Debug)]
pub struct CpuBudget {
    /// What may be used at once.
    burst: Duration,
    /// The part of a core.
    share: f64,
    /// Used seconds, less the recovered share.
    seconds: f64,
    /// When they were last updated.
    at: Option<Instant>,
}

impl CpuBudget {
    /// `share` is the part of a core that work may use in the long run: 0.1 is a tenth.
    #[must_use]
    pub const fn new(burst: Duration, share: f64) -> Self {
        Self {
            burst,
            share,
            seconds: 0.0,
            at: None,
        }
    }

    /// Whether more work may start.
    pub fn has_room(&mut self, now: Instant) -> bool {
        let since = self
            .at
            .map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.seconds = (self.seconds - since * self.share).max(0.0);
        self.at = Some(now);
        self.seconds < self.burst.as_secs_f64()
    }

    /// Adds the duration of finished work.
    pub fn add(&mut self, took: Duration) {
        self.seconds += took.as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_its_share_of_the_time_in_the_long_run() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut budget = CpuBudget::new(Duration::from_secs(10), 0.1);
        let mut done = 0;
        for at in 0..1000 {
            if budget.has_room(start + second * at) {
                budget.add(second);
                done += 1;
            }
        }
        assert!(
            (105..=112).contains(&done),
            "10 at first, then one in ten seconds: {done}"
        );
    }
}
