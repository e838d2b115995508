//! Tokens until shortly before they expire, and failures until the exchange is tried again. Has no
//! clock: callers pass the time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::IssuedToken;
use navarch_net::backoff::Backoff;

/// Maximum number of entries. An agent has a handful of clients, whose subject token changes once
/// an hour.
const MAX_ENTRIES: usize = 256;
/// A token is exchanged again when it is valid for less than this, as in Istio 1.14.
const GRACE: Duration = Duration::from_secs(300);
/// For tokens with a short lifetime: when less than this fraction of it is left.
const GRACE_FRACTION: u32 = 4;
/// Delays after failures.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Tokens and failures, by the digest of the request.
#[derive(Debug, Default)]
pub(super) struct TokenCache(BTreeMap<String, CachedExchange>);

/// The latest token for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldToken {
    pub(super) token: IssuedToken,
    /// Its audiences and resources.
    pub(super) target: String,
    pub(super) issued: Instant,
    /// `None` if the server did not say when the token expires: then it is not kept.
    pub(super) expires: Option<Instant>,
}

/// What to do for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Use this token.
    Token(Box<HeldToken>),
    /// Make no exchange yet: the last one failed.
    BackOff,
    /// Exchange.
    Exchange,
}

#[derive(Debug)]
struct CachedExchange {
    token: Option<HeldToken>,
    backoff: Backoff,
    /// No exchange before this time.
    retry: Option<Instant>,
}

impl HeldToken {
    /// A token that was received now.
    pub(super) fn new(token: IssuedToken, target: String, now: Instant) -> Self {
        Self {
            expires: token.lifetime.and_then(|span| now.checked_add(span)),
            issued: now,
            token,
            target,
        }
    }

    fn is_valid(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| now < expires)
    }

    /// Whether it expires so late that it is not exchanged again yet.
    fn is_fresh(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| {
            let grace = GRACE.min(expires.duration_since(self.issued) / GRACE_FRACTION);
            now + grace < expires
        })
    }
}

impl CachedExchange {
    fn new() -> Self {
        Self {
            token: None,
            backoff: Backoff::jittered(FIRST_DELAY, MAX_DELAY),
            retry: None,
        }
    }

    /// When nothing of the entry is needed any more.
    fn end(&self) -> Option<Instant> {
        let expires = self.token.as_ref().and_then(|token| token.expires);
        expires.max(self.retry)
    }
}

impl TokenCache {
    /// The token for a request, or whether to exchange. A token that expires soon is used while
    /// exchanges fail.
    pub(super) fn lookup(&self, digest: &str, now: Instant) -> Lookup {
        let Some(entry) = self.0.get(digest) else {
            return Lookup::Exchange;
        };
        let waits = entry.retry.is_some_and(|retry| now < retry);
        match &entry.token {
            Some(token) if token.is_fresh(now) || waits && token.is_valid(now) => {
                Lookup::Token(Box::new(token.clone()))
            }
            _ if waits => Lookup::BackOff,
            Some(_) | None => Lookup::Exchange,
        }
    }

    /// Keeps a token, if it is known when it expires.
    pub(super) fn insert(&mut self, digest: &str, token: &HeldToken, now: Instant) {
        if !token.is_valid(now) {
            self.0.remove(digest);
            return;
        }
        self.make_room(digest, now);
        let entry = CachedExchange {
            token: Some(token.clone()),
            ..CachedExchange::new()
        };
        self.0.insert(digest.to_owned(), entry);
    }

    /// Delays the next exchange after a failed one. Returns the previous token if it is valid.
    pub(super) fn failed(&mut self, digest: &str, now: Instant) -> Option<HeldToken> {
        self.make_room(digest, now);
        let entry = self
            .0
            .entry(digest.to_owned())
            .or_insert_with(CachedExchange::new);
        entry.retry = now.checked_add(entry.backoff.next_delay());
        entry.token.clone().filter(|token| token.is_valid(now))
    }

    /// All valid tokens.
    pub(super) fn tokens(&self, now: Instant) -> impl Iterator<Item = &HeldToken> {
        let tokens = self.0.values().filter_map(|entry| entry.token.as_ref());
        tokens.filter(move |token| token.is_valid(now))
    }

    /// Removes entries that are not needed any more, and the one that ends first if there are too
    /// many.
    fn make_room(&mut self, digest: &str, now: Instant) {
        // The number of failures is remembered for a while after the delay.
        let is_needed =
            |entry: &CachedExchange| entry.end().is_some_and(|end| now < end + MAX_DELAY);
        self.0
            .retain(|other, entry| other.as_str() == digest || is_needed(entry));
        if self.0.len() < MAX_ENTRIES || self.0.contains_key(digest) {
            return;
        }

        let first = self.0.iter().min_by_key(|(_, entry)| entry.end());
        if let Some(first) = first.map(|(digest, _)| digest.clone()) {
            self.0.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::ACCESS_TOKEN;
    use super::super::secret::Secret;
    use super::*;

    fn token(text: &str, seconds: u64, now: Instant) -> HeldToken {
        let token = IssuedToken {
            token: Secret::new(text),
            issued_token_type: ACCESS_TOKEN.to_owned(),
            token_type: "Bearer".to_owned(),
            scope: None,
            lifetime: Some(Duration::from_secs(seconds)),
            federated: None,
        };
        HeldToken::new(token, "bank".to_owned(), now)
    }

    fn after(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    #[test]
    fn a_token_is_kept_until_shortly_before_it_expires() {
        let now = Instant::now();
        for (lifetime, fresh) in [(3600, 3299), (100, 74)] {
            let mut cache = TokenCache::default();
            let held = token("a", lifetime, now);
            cache.insert("one", &held, now);
            let looked = |seconds| cache.lookup("one", after(now, seconds));
            assert_eq!(looked(fresh), Lookup::Token(Box::new(held)));
            assert_eq!(looked(fresh + 2), Lookup::Exchange);
            assert_eq!(cache.lookup("two", now), Lookup::Exchange);
        }
    }

    #[test]
    fn a_token_without_a_lifetime_is_not_kept() {
        let now = Instant::now();
        let mut cache = TokenCache::default();
        cache.insert("one", &token("a", 0, now), now);
        assert_eq!(cache.lookup("one", now), Lookup::Exchange);
        assert!(cache.0.is_empty());
    }

    #[test]
    fn a_failed_exchange_is_repeated_later_and_later() {
        let now = Instant::now();
        let mut cache = TokenCache::default();
        assert_eq!(cache.failed("one", now), None);
        assert_eq!(cache.lookup("one", now), Lookup::BackOff);
        assert_eq!(cache.lookup("two", now), Lookup::Exchange);
        assert_eq!(cache.lookup("one", after(now, 2)), Lookup::Exchange);

        for seconds in [2, 4, 8, 16, 32] {
            cache.failed("one", after(now, seconds));
        }
        assert_eq!(cache.lookup("one", after(now, 32 + 15)), Lookup::BackOff);
        assert_eq!(cache.lookup("one", after(now, 32 + 90)), Lookup::Exchange);
    }

    #[test]
    fn a_valid_token_is_used_while_exchanges_fail() {
        let now = Instant::now();
        let mut cache = TokenCache::default();
        let held = token("a", 3600, now);
        cache.insert("one", &held, now);
        let late = after(now, 3400);
        assert_eq!(cache.lookup("one", late), Lookup::Exchange);
        assert_eq!(cache.failed("one", late), Some(held.clone()));
        assert_eq!(cache.lookup("one", late), Lookup::Token(Box::new(held)));
        assert_eq!(cache.failed("one", after(now, 3600)), None);
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        let now = Instant::now();
        let mut cache = TokenCache::default();
        for (number, lifetime) in (1000..).take(MAX_ENTRIES + 1).enumerate() {
            cache.insert(&number.to_string(), &token("a", lifetime, now), now);
        }
        assert_eq!(cache.0.len(), MAX_ENTRIES);
        assert_eq!(cache.lookup("0", now), Lookup::Exchange, "it ends first");

        cache.failed("new", after(now, 7200));
        assert_eq!(cache.0.len(), 1, "the others have expired");
    }
}
