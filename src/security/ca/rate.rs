//! How many certificates one caller may ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::identity::Identity;

/// Callers that are remembered; beyond it those go that have asked for nothing for longest.
const MAX_CALLERS: usize = 100_000;

/// Lets each caller have a burst, and then so many per second.
#[derive(Debug)]
pub(super) struct RateLimit {
    /// Time that one certificate costs.
    cost: Duration,
    /// Time that a caller may be ahead by.
    burst: Duration,
    /// By caller, when it will have paid for all that it had. Those who have paid are forgotten.
    paid_at: Mutex<BTreeMap<Identity, Instant>>,
}

impl RateLimit {
    /// So many per second, and so many at once.
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        let cost = Duration::from_secs(1) / per_second.max(1);
        Self { cost, burst: cost * burst.max(1), paid_at: Mutex::default() }
    }

    /// Whether a caller may have another certificate now.
    pub(super) fn admit(&self, caller: &Identity, now: Instant) -> bool {
        let mut paid_at = self.paid_at.lock();
        if paid_at.len() >= MAX_CALLERS {
            paid_at.retain(|_, at| *at > now);
        }
        let next = paid_at.get(caller).map_or(now, |at| (*at).max(now)) + self.cost;
        if next > now + self.burst || (paid_at.len() >= MAX_CALLERS && !paid_at.contains_key(caller)) {
            return false;
        }
        paid_at.insert(caller.clone(), next);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_burst_and_then_waits_and_others_do_not() {
        let limit = RateLimit::new(2, 3);
        let now = Instant::now();
        let one = Identity::parse("spiffe://td/ns/a/sa/one").unwrap();
        let other = Identity::parse("spiffe://td/ns/a/sa/other").unwrap();
        assert_eq!((0..5).map(|_| limit.admit(&one, now)).collect::<Vec<_>>(), [true, true, true, false, false]);
        assert!(limit.admit(&other, now));
        let later = now + Duration::from_millis(500);
        assert!(limit.admit(&one, later) && !limit.admit(&one, later));
    }
}
