//! Decides when tokens are exchanged: one exchange at a time for the same target.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Gate, Semaphore};
use tokio::time::{Instant, timeout};

use super::cache::{HeldToken, Lookup, TokenCache};
use super::exchange::{Exchange, ExchangeError};
use super::request::{RequestError, TokenRequest};

/// Maximum number of requests that wait for an exchange, their own included.
const MAX_WAITING: usize = 64;
/// How long a request waits for earlier exchanges.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// Timeout of an exchange. Google's has two requests.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Exchanges tokens, and keeps them.
#[derive(Debug)]
pub(crate) struct TokenManager {
    exchange: Box<dyn Exchange>,
    cache: Mutex<TokenCache>,
    /// Held during an exchange, by target.
    gates: Mutex<BTreeMap<String, Weak<Gate<()>>>>,
    waiting: Semaphore,
}

impl TokenManager {
    /// A manager without tokens.
    pub(crate) fn new(exchange: Box<dyn Exchange>) -> Self {
        Self {
            exchange,
            cache: Mutex::default(),
            gates: Mutex::default(),
            waiting: Semaphore::new(MAX_WAITING),
        }
    }

    /// Checks what the exchange requires of a request.
    pub(super) fn check(&self, request: &TokenRequest) -> Result<(), RequestError> {
        self.exchange.check(request)
    }

    /// A token for a request: a valid one, or that of an exchange.
    pub(super) async fn token(&self, request: &TokenRequest) -> Result<HeldToken, ExchangeError> {
        let digest = request.digest();
        if let Some(known) = self.known(&digest) {
            return known;
        }

        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err(ExchangeError::Busy);
        };
        let gate = self.gate(request.target());
        let Ok(_turn) = timeout(MAX_WAIT, gate.lock()).await else {
            return Err(ExchangeError::Busy);
        };

        // An exchange of the same token may have ended meanwhile.
        if let Some(known) = self.known(&digest) {
            return known;
        }
        let outcome = timeout(EXCHANGE_TIMEOUT, self.exchange.exchange(request)).await;
        let now = Instant::now();
        match outcome.unwrap_or(Err(ExchangeError::Timeout)) {
            Ok(token) => {
                let held = HeldToken::new(token, request.target(), now);
                self.cache.lock().insert(&digest, &held, now);
                Ok(held)
            }
            Err(error) => {
                let previous = self.cache.lock().failed(&digest, now);
                previous.ok_or(error)
            }
        }
    }

    /// All valid tokens.
    pub(super) fn tokens(&self, now: Instant) -> Vec<HeldToken> {
        self.cache.lock().tokens(now).cloned().collect()
    }

    /// The outcome without an exchange, if none must be made.
    fn known(&self, digest: &str) -> Option<Result<HeldToken, ExchangeError>> {
        match self.cache.lock().lookup(digest, Instant::now()) {
            Lookup::Token(token) => Some(Ok(*token)),
            Lookup::BackOff => Some(Err(ExchangeError::BackOff)),
            Lookup::Exchange => None,
        }
    }

    /// The gate of a target, which those have in common that wait for it.
    fn gate(&self, target: String) -> Arc<Gate<()>> {
        let mut gates = self.gates.lock();
        gates.retain(|_, gate| gate.strong_count() > 0);
        if let Some(gate) = gates.get(&target).and_then(Weak::upgrade) {
            return gate;
        }
        let gate = Arc::new(Gate::new(()));
        gates.insert(target, Arc::downgrade(&gate));
        gate
    }
}
