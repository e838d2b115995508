//! Closes the way to a signer that is away, so that requests fail at once and nothing piles up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::signer::SignerError;
use navarch_net::backoff::Backoff;

/// Failures in a row after which the way is closed: a single one may be a restart.
const MAX_FAILURES: u32 = 3;
/// How long the way stays closed before one request is tried.
const DELAYS: Backoff = Backoff::jittered(Duration::from_secs(1), Duration::from_secs(60));

/// Whether requests are passed to a signer.
///
/// Only calls that did not reach the signer count. Slow and denied requests do not: one namespace
/// could close the way for all others.
#[derive(Debug)]
pub(super) struct Circuit(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Failures since the last success.
    failures: u32,
    /// The next attempt, if the way is closed, and why it is.
    closed: Option<(Instant, Arc<str>)>,
    /// Whether an attempt is under way while the way is closed.
    is_tried: bool,
    delays: Backoff,
}

/// A request that may be passed on. Dropped without a result it changes nothing.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    circuit: &'a Circuit,
    /// Whether it is the attempt of a closed way.
    is_attempt: bool,
}

impl Default for Circuit {
    fn default() -> Self {
        Self(Mutex::new(State {
            failures: 0,
            closed: None,
            is_tried: false,
            delays: DELAYS,
        }))
    }
}

impl Circuit {
    /// Lets a request pass. While the way is closed, one at a time passes after each delay.
    ///
    /// # Errors
    /// [`SignerError::Away`] with the reason of the last failure, if the way is closed.
    pub(super) fn enter(&self, now: Instant) -> Result<Pass<'_>, SignerError> {
        let mut state = self.0.lock();
        let is_attempt = match &state.closed {
            None => false,
            Some((until, _)) if *until <= now && !state.is_tried => true,
            Some((_, why)) => return Err(SignerError::Away(why.clone())),
        };
        state.is_tried |= is_attempt;

        Ok(Pass {
            circuit: self,
            is_attempt,
        })
    }

    /// Why a request would not pass now; `None` if it would.
    pub(super) fn closed_at(&self, now: Instant) -> Option<Arc<str>> {
        let state = self.0.lock();
        let (until, why) = state.closed.as_ref()?;
        (*until > now || state.is_tried).then(|| why.clone())
    }

    /// Why the way is closed; `None` if it is open.
    pub(super) fn closed(&self) -> Option<Arc<str>> {
        self.0.lock().closed.as_ref().map(|(_, why)| why.clone())
    }
}

impl Pass<'_> {
    /// The signer was reached, whatever it answered.
    pub(super) fn reached(self) {
        let mut state = self.circuit.0.lock();
        state.failures = 0;
        state.closed = None;
        state.delays.reset();
    }

    /// The signer was not reached.
    pub(super) fn failed(self, why: Arc<str>, now: Instant) {
        let mut state = self.circuit.0.lock();
        state.failures = state.failures.saturating_add(1);
        let is_due = match &state.closed {
            None => state.failures >= MAX_FAILURES,
            // Requests that were under way when it closed do not prolong it.
            Some(_) => self.is_attempt,
        };

        if is_due {
            let until = now + state.delays.next_delay();
            state.closed = Some((until, why));
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_attempt {
            self.circuit.0.lock().is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_signer_that_is_away_is_tried_rarely_and_by_one() {
        let circuit = Circuit::default();
        let why: Arc<str> = Arc::from("refused");

        for _ in 0..MAX_FAILURES {
            let pass = circuit.enter(Instant::now()).unwrap();
            pass.failed(why.clone(), Instant::now());
        }
        let closed = circuit.enter(Instant::now()).unwrap_err();
        assert!(matches!(closed, SignerError::Away(reason) if reason == why));

        tokio::time::advance(Duration::from_secs(2)).await;
        let attempt = circuit.enter(Instant::now()).unwrap();
        assert!(circuit.enter(Instant::now()).is_err(), "one at a time");
        drop(attempt);
        let attempt = circuit.enter(Instant::now()).unwrap();
        attempt.failed(why.clone(), Instant::now());
        assert!(circuit.enter(Instant::now()).is_err(), "it is still away");

        tokio::time::advance(Duration::from_secs(60)).await;
        circuit.enter(Instant::now()).unwrap().reached();
        assert!(circuit.closed().is_none() && circuit.enter(Instant::now()).is_ok());
    }
}
