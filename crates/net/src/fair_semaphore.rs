//! A semaphore that is fair among keys, for work such as requests to the API server on behalf of
//! clients.
//!
//! Keys identify clients: addresses, identities. A key may have as many permits, and as many
//! waiters, as are left for all others. Keys with waiters take turns. So one client can neither
//! take all permits nor make others wait behind all of its own work.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::budget::Full;

/// Limits concurrent and waiting work, fairly among keys.
pub struct FairSemaphore<K: Clone + Eq + Hash> {
    /// Maximum number of permits.
    at_once: usize,
    /// Maximum number of waiters.
    waiting: usize,
    state: Mutex<State<K>>,
}

/// A permit, released when it is dropped.
pub struct FairPermit<K: Clone + Eq + Hash> {
    /// The semaphore and key of the permit; `None` once it is released.
    of: Option<(Arc<FairSemaphore<K>>, K)>,
}

struct State<K: Clone + Eq + Hash> {
    /// Permits in use.
    under_way: usize,
    /// Number of waiters.
    waiting: usize,
    /// By key; keys without permits and waiters are removed.
    keys: HashMap<K, KeyState<K>>,
    /// The keys with waiters, in round-robin order.
    circle: VecDeque<K>,
}

/// Permits and waiters of one key.
struct KeyState<K: Clone + Eq + Hash> {
    /// Permits in use.
    under_way: usize,
    /// The waiters, in order of arrival.
    queue: VecDeque<oneshot::Sender<FairPermit<K>>>,
}

impl<K: Clone + Eq + Hash> FairSemaphore<K> {
    /// At most `at_once` permits, and at most `waiting` waiters.
    #[must_use]
    pub fn new(at_once: usize, waiting: usize) -> Arc<Self> {
        let state = State {
            under_way: 0,
            waiting: 0,
            keys: HashMap::new(),
            circle: VecDeque::new(),
        };
        Arc::new(Self {
            at_once,
            waiting,
            state: Mutex::new(state),
        })
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// If there are too many waiters, of this key or in total.
    pub async fn take(self: &Arc<Self>, key: K) -> Result<FairPermit<K>, Full> {
        let turn = {
            let mut state = self.state.lock();
            if state.may_acquire(&key, self.at_once)
                && state
                    .keys
                    .get(&key)
                    .is_none_or(|share| share.queue.is_empty())
            {
                state.begin(&key);
                return Ok(FairPermit {
                    of: Some((self.clone(), key)),
                });
            }
            state.wait(key, self.waiting)?
        };
        turn.await.map_err(|_| Full)
    }

    /// Releases a permit and hands free permits to waiters.
    fn end(self: &Arc<Self>, key: &K) {
        let mut state = self.state.lock();
        state.end(key);
        while let Some((key, waiting)) = state.next(self.at_once) {
            if waiting.is_closed() {
                state.forget(&key);
                continue;
            }
            state.begin(&key);
            if let Err(mut unwanted) = waiting.send(FairPermit {
                of: Some((self.clone(), key.clone())),
            }) {
                // Dropping the permit would lock the state again.
                unwanted.of = None;
                state.end(&key);
            }
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Whether a key may have one more permit now.
    fn may_acquire(&self, key: &K, at_once: usize) -> bool {
        let own = self.keys.get(key).map_or(0, |share| share.under_way) + 1;
        let all = self.under_way + 1;
        all <= at_once && (own == 1 || own <= at_once - all)
    }

    /// Counts a new permit of a key.
    fn begin(&mut self, key: &K) {
        self.under_way += 1;
        self.share(key).under_way += 1;
    }

    /// Counts the release of a permit of a key.
    fn end(&mut self, key: &K) {
        self.under_way = self.under_way.saturating_sub(1);
        let share = self.share(key);
        share.under_way = share.under_way.saturating_sub(1);
        self.forget(key);
    }

    /// The state of a key, which is inserted if missing.
    fn share(&mut self, key: &K) -> &mut KeyState<K> {
        self.keys.entry(key.clone()).or_insert_with(|| KeyState {
            under_way: 0,
            queue: VecDeque::new(),
        })
    }

    /// Removes a key without permits and waiters.
    fn forget(&mut self, key: &K) {
        if self
            .keys
            .get(key)
            .is_some_and(|share| share.under_way == 0 && share.queue.is_empty())
        {
            self.keys.remove(key);
        }
    }

    fn wait(&mut self, key: K, limit: usize) -> Result<oneshot::Receiver<FairPermit<K>>, Full> {
        let own = self.keys.get(&key).map_or(0, |share| share.queue.len()) + 1;
        let all = self.waiting + 1;
        if all > limit || own > 1 && own > limit - all {
            return Err(Full);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting = all;
        self.share(&key).queue.push_back(sender);
        if own == 1 {
            self.circle.push_back(key);
        }
        Ok(receiver)
    }

    /// Removes and returns the next waiter whose key may have a permit.
    fn next(&mut self, at_once: usize) -> Option<(K, oneshot::Sender<FairPermit<K>>)> {
        let at = self
            .circle
            .iter()
            .position(|key| self.may_acquire(key, at_once))?;
        let key = self.circle.remove(at)?;
        let share = self.keys.get_mut(&key)?;
        let sender = share.queue.pop_front()?;
        self.waiting -= 1;
        if !share.queue.is_empty() {
            self.circle.push_back(key.clone());
        }
        Some((key, sender))
    }
}

impl<K: Clone + Eq + Hash> Drop for FairPermit<K> {
    fn drop(&mut self) {
        if let Some((turns, key)) = self.of.take() {
            turns.end(&key);
        }
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for FairSemaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairSemaphore")
            .field("at_once", &self.at_once)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for FairPermit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FairPermit")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A permit, if it is granted without waiting.
    fn now(turns: &Arc<FairSemaphore<u8>>, key: u8) -> Option<FairPermit<u8>> {
        turns.take(key).now_or_never().and_then(Result::ok)
    }

    #[tokio::test]
    async fn one_key_does_not_starve_others() {
        let turns = FairSemaphore::new(8, 8);
        let first: Vec<_> = std::iter::from_fn(|| now(&turns, 1)).collect();
        assert_eq!(first.len(), 4);
        let second: Vec<_> = std::iter::from_fn(|| now(&turns, 2)).collect();
        assert_eq!(second.len(), 2);
        let others: Vec<_> = (3..=9).filter_map(|key| now(&turns, key)).collect();
        assert_eq!(others.len(), 2, "no more than there are");
        drop((first, second, others));
        let state = turns.state.lock();
        assert!(state.keys.is_empty() && state.under_way == 0);
    }

    #[tokio::test]
    async fn waiters_are_served_round_robin_by_key() {
        let turns = FairSemaphore::new(1, 100);
        let held = now(&turns, 0).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();

        for key in [1, 1, 1, 2, 3, 2] {
            let turns = turns.clone();
            let order = order.clone();
            tasks.spawn(async move {
                let turn = turns.take(key).await.unwrap();
                order.lock().push(key);
                drop(turn);
            });
            tokio::task::yield_now().await;
        }

        // A waiter that gives up is skipped.
        assert!(turns.take(4).now_or_never().is_none());
        drop(held);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*order.lock(), [1, 2, 3, 1, 2, 1]);
        let state = turns.state.lock();
        assert!(state.keys.is_empty() && state.circle.is_empty() && state.waiting == 0);
    }

    #[tokio::test]
    async fn one_key_may_not_fill_the_queue() {
        let turns = FairSemaphore::new(1, 8);
        let _held = now(&turns, 0).unwrap();
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(turns.take(1))).collect();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(turns.take(1).now_or_never().unwrap().unwrap_err(), Full);
        let mut other = Box::pin(turns.take(2));
        assert!((&mut other).now_or_never().is_none());
    }
}
