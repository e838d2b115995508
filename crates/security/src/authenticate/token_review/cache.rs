//! Recent token reviews, by the hashes of the tokens. Accepted and rejected tokens have separate
//! capacities, so that made-up tokens evict only other rejected ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::{Account, Verdict};

/// How long an accepted token is not reviewed again.
const ACCEPTED_TTL: Duration = Duration::from_secs(60);
/// How long a rejected token is not reviewed again.
const REJECTED_TTL: Duration = Duration::from_secs(10);
/// Maximum number of cached accepted tokens.
const MAX_ACCEPTED: usize = 100_000;
/// Maximum number of cached rejected tokens.
const MAX_REJECTED: usize = 10_000;

/// A hash of a token.
pub(super) type Hash = [u8; 32];

/// A cache of token reviews.
#[derive(Debug)]
pub(super) struct ReviewCache(Mutex<CachedReviews>);

#[derive(Debug)]
struct CachedReviews {
    /// Accepted tokens.
    good: Recent<Account>,
    /// Rejected tokens.
    bad: Recent<Arc<str>>,
    /// Reviews in flight, with the number of waiters of each.
    pending: BTreeMap<Hash, (usize, Arc<OnceCell<Verdict>>)>,
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum CacheLookup<'a> {
    /// The cached verdict.
    Hit(Verdict),
    /// No verdict yet: the holder reviews the token, or waits for another caller's review.
    Miss(PendingReview<'a>),
}

/// A caller that reviews a token, or waits for another caller's review.
#[derive(Debug)]
pub(super) struct PendingReview<'a> {
    kept: &'a ReviewCache,
    hash: Hash,
    /// The cell that receives the verdict.
    cell: Arc<OnceCell<Verdict>>,
}

/// Verdicts of one kind. The oldest are removed when they expire, or to make room.
#[derive(Debug)]
struct Recent<V> {
    /// Verdicts by token, with the time of each.
    answers: BTreeMap<Hash, (Instant, V)>,
    /// Times and tokens, oldest first. A token that was reviewed again has two entries.
    order: VecDeque<(Instant, Hash)>,
    /// How long a verdict is valid.
    lifetime: Duration,
    /// Maximum number of verdicts.
    limit: usize,
}

impl<V: Clone> Recent<V> {
    /// An empty cache.
    fn new(lifetime: Duration, limit: usize) -> Self {
        Self {
            answers: BTreeMap::new(),
            order: VecDeque::new(),
            lifetime,
            limit,
        }
    }

    /// The valid verdict for a token.
    fn get(&self, hash: &Hash, now: Instant) -> Option<V> {
        let (since, answer) = self.answers.get(hash)?;
        (now < *since + self.lifetime).then(|| answer.clone())
    }

    /// Inserts a verdict, and removes old ones.
    fn put(&mut self, hash: Hash, answer: V, now: Instant) {
        while let Some((since, oldest)) = self.order.front().copied() {
            if now < since + self.lifetime && self.order.len() < self.limit {
                break;
            }
            self.order.pop_front();
            if self
                .answers
                .get(&oldest)
                .is_some_and(|(current, _)| *current == since)
            {
                self.answers.remove(&oldest);
            }
        }
        self.answers.insert(hash, (now, answer));
        self.order.push_back((now, hash));
    }
}

impl Default for ReviewCache {
    fn default() -> Self {
        let good = Recent::new(ACCEPTED_TTL, MAX_ACCEPTED);
        let bad = Recent::new(REJECTED_TTL, MAX_REJECTED);
        Self(Mutex::new(CachedReviews {
            good,
            bad,
            pending: BTreeMap::new(),
        }))
    }
}

impl ReviewCache {
    /// Looks up a token.
    pub(super) fn lookup(&self, hash: Hash, now: Instant) -> CacheLookup<'_> {
        let mut answers = self.0.lock();
        if let Some(account) = answers.good.get(&hash, now) {
            return CacheLookup::Hit(Verdict::Good(account));
        }
        if let Some(reason) = answers.bad.get(&hash, now) {
            return CacheLookup::Hit(Verdict::Bad(reason));
        }
        let (waiting, cell) = answers.pending.entry(hash).or_default();
        *waiting += 1;
        CacheLookup::Miss(PendingReview {
            kept: self,
            hash,
            cell: cell.clone(),
        })
    }
}

impl PendingReview<'_> {
    /// The verdict: the first caller reviews the token, concurrent callers wait for it. Failures
    /// are not cached.
    pub(super) async fn answer<F: Future<Output = Result<Verdict, &'static str>>>(
        &self,
        ask: impl FnOnce() -> F,
    ) -> Result<Verdict, &'static str> {
        let ask = async || {
            let verdict = ask().await?;
            let mut answers = self.kept.0.lock();
            let now = Instant::now();
            match &verdict {
                Verdict::Good(account) => answers.good.put(self.hash, account.clone(), now),
                Verdict::Bad(reason) => answers.bad.put(self.hash, reason.clone(), now),
            }
            drop(answers);
            Ok(verdict)
        };
        self.cell.get_or_try_init(ask).await.cloned()
    }
}

impl Drop for PendingReview<'_> {
    fn drop(&mut self) {
        let mut answers = self.kept.0.lock();
        if let Some((waiting, _)) = answers.pending.get_mut(&self.hash) {
            *waiting -= 1;
            if *waiting == 0 {
                answers.pending.remove(&self.hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(kept: &ReviewCache, number: usize) -> bool {
        matches!(
            kept.lookup(hash(number), Instant::now()),
            CacheLookup::Hit(_)
        )
    }

    fn hash(number: usize) -> Hash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    #[test]
    fn the_oldest_verdicts_are_evicted_when_expired_or_room_is_needed() {
        let now = Instant::now();
        let mut recent = Recent::new(REJECTED_TTL, 3);
        for number in 0..10 {
            recent.put(hash(number), number, now);
        }

        let known = |recent: &Recent<usize>, now| -> Vec<usize> {
            (0..12)
                .filter(|n| recent.get(&hash(*n), now).is_some())
                .collect()
        };
        assert_eq!(known(&recent, now), [7, 8, 9]);
        let later = now + REJECTED_TTL / 2;
        recent.put(hash(9), 99, later);

        assert_eq!(recent.get(&hash(9), later), Some(99));
        let end = now + REJECTED_TTL;
        assert_eq!(known(&recent, end), [9], "answered again");
        recent.put(hash(11), 11, end);
        assert_eq!((recent.answers.len(), recent.order.len()), (2, 2));
    }

    #[tokio::test]
    async fn forged_tokens_evict_no_valid_ones() {
        let kept = ReviewCache::default();
        let now = Instant::now();
        let say = async |number, verdict: &Verdict| {
            let CacheLookup::Miss(asking) = kept.lookup(hash(number), now) else {
                panic!("nothing is known")
            };
            asking.answer(async || Ok(verdict.clone())).await.unwrap();
        };

        say(
            0,
            &Verdict::Good(Account {
                namespace: "shop".into(),
                name: "web".into(),
                pod: None,
            }),
        )
        .await;
        for number in 1..=2 * MAX_REJECTED {
            say(number, &Verdict::Bad("made up".into())).await;
        }

        assert!(is_known(&kept, 0) && !is_known(&kept, 1) && is_known(&kept, 2 * MAX_REJECTED));
        let answers = kept.0.lock();
        assert!(
            answers.bad.answers.len() <= MAX_REJECTED && answers.bad.order.len() <= MAX_REJECTED
        );
        assert!(answers.pending.is_empty());
    }

    #[tokio::test]
    async fn cancelled_and_failed_reviews_are_not_cached() {
        let kept = ReviewCache::default();
        let CacheLookup::Miss(first) = kept.lookup(hash(1), Instant::now()) else {
            panic!("nothing is known")
        };
        let CacheLookup::Miss(second) = kept.lookup(hash(1), Instant::now()) else {
            panic!("nothing is known")
        };
        assert!(Arc::ptr_eq(&first.cell, &second.cell));
        drop(first);
        assert_eq!(
            second.answer(async || Err("nobody answers")).await,
            Err("nobody answers")
        );
        drop(second);
        assert!(kept.0.lock().pending.is_empty());
        assert!(!is_known(&kept, 1));
    }
}
