//! Rate limits by client.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of tracked clients.
const MAX_CLIENTS: usize = 100_000;
/// Minimum interval of removing clients with full buckets when the limit is reached: it visits
/// every client.
const SWEEP: Duration = Duration::from_secs(1);

/// A token bucket for each client.
#[derive(Debug)]
pub struct RateLimit<K> {
    /// The time per token.
    cost: Duration,
    /// The size of the bucket as time.
    burst: Duration,
    clients: Mutex<Clients<K>>,
}

#[derive(Debug)]
struct Clients<K> {
    /// When each client's bucket is full again. Clients with full buckets are removed.
    paid_at: HashMap<K, Instant>,
    /// When full buckets were last removed.
    swept: Option<Instant>,
}

impl<K: Clone + Eq + Hash> RateLimit<K> {
    /// `per_second` tokens per second, with bursts of `burst`.
    #[must_use]
    pub fn new(per_second: u32, burst: u32) -> Self {
        let cost = Duration::from_secs(1) / per_second.max(1);
        let clients = Clients {
            paid_at: HashMap::new(),
            swept: None,
        };
        Self {
            cost,
            burst: cost * burst.max(1),
            clients: Mutex::new(clients),
        }
    }

    /// Takes a token of a client, if it has one. New clients are rejected when too many are
    /// tracked.
    #[must_use]
    pub fn admit(&self, client: &K, now: Instant) -> bool {
        let mut clients = self.clients.lock();
        let next = clients.next(client, self.cost, now);
        next <= now + self.burst && clients.note(client, next, now)
    }

    /// Whether a client has a token. Takes none.
    #[must_use]
    pub fn allows(&self, client: &K, now: Instant) -> bool {
        self.clients.lock().next(client, self.cost, now) <= now + self.burst
    }

    /// Takes a token of a client, even beyond its limit. New clients are not tracked when there are
    /// too many.
    pub fn charge(&self, client: &K, now: Instant) {
        let mut clients = self.clients.lock();
        let next = clients
            .next(client, self.cost, now)
            .min(now + self.burst + self.cost);
        clients.note(client, next, now);
    }
}

impl<K: Clone + Eq + Hash> Clients<K> {
    /// When a client's bucket would be full again after one more token.
    fn next(&self, client: &K, cost: Duration, now: Instant) -> Instant {
        self.paid_at.get(client).map_or(now, |at| (*at).max(now)) + cost
    }

    /// Records when a client's bucket is full again; false if too many clients are tracked.
    fn note(&mut self, client: &K, next: Instant, now: Instant) -> bool {
        if self.paid_at.len() >= MAX_CLIENTS && self.swept.is_none_or(|swept| now >= swept + SWEEP)
        {
            self.paid_at.retain(|_, at| *at > now);
            self.swept = Some(now);
        }
        if let Some(at) = self.paid_at.get_mut(client) {
            *at = next;
            return true;
        }
        let has_room = self.paid_at.len() < MAX_CLIENTS;
        if has_room {
            self.paid_at.insert(client.clone(), next);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_burst_and_then_waits_and_others_do_not() {
        let limit = RateLimit::new(2, 3);
        let now = Instant::now();
        assert_eq!(
            (0..5).map(|_| limit.admit(&1, now)).collect::<Vec<_>>(),
            [true, true, true, false, false]
        );
        assert!(limit.admit(&2, now));
        let later = now + Duration::from_millis(500);
        assert!(limit.admit(&1, later) && !limit.admit(&1, later));
    }

    #[test]
    fn overcharged_clients_recover_soon() {
        let limit = RateLimit::new(2, 3);
        let now = Instant::now();
        for _ in 0..100 {
            limit.charge(&1, now);
        }
        assert!(!limit.allows(&1, now) && limit.allows(&2, now));
        assert!(limit.allows(&1, now + Duration::from_secs(1)));
    }

    #[test]
    fn a_full_rate_limiter_sweeps_idle_clients() {
        let limit = RateLimit::new(1, 1);
        let now = Instant::now();
        assert!((0..MAX_CLIENTS).all(|client| limit.admit(&client, now)));
        assert!(!limit.admit(&MAX_CLIENTS, now), "there is no room");
        assert!(limit.admit(&MAX_CLIENTS, now + 2 * SWEEP));
        assert_eq!(limit.clients.lock().paid_at.len(), 1);
    }
}
