//! Breaks the circuit to a signer that is unavailable, so that requests fail at once and nothing
//! piles up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::signer::SignerError;
use navarch_net::backoff::Backoff;

/// Failures in a row after which the circuit opens: a single one may be a restart.
const MAX_FAILURES: u32 = 3;
/// How long the circuit stays open before one request probes the signer.
const DELAYS: Backoff = Backoff::jittered(Duration::from_secs(1), Duration::from_secs(60));

/// Whether requests are passed to a signer: while the circuit is closed they are, while it is open
/// they fail.
///
/// Only calls that did not reach the signer count. Slow and denied requests do not: one namespace
/// could open the circuit for all others.
#[derive(Debug)]
pub(super) struct CircuitBreaker(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Failures since the last success.
    failures: u32,
    /// `None` while the circuit is closed.
    opened: Option<Opened>,
    /// Whether a probe is under way.
    is_probing: bool,
    delays: Backoff,
}

/// Why no request passes, and for how long.
#[derive(Debug)]
struct Opened {
    /// When one request may pass as a probe.
    until: Instant,
    reason: Arc<str>,
}

/// A request that may be passed on. Dropped without a result it changes nothing.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a CircuitBreaker,
    /// Whether it probes the signer while the circuit is open.
    is_probe: bool,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self(Mutex::new(State {
            failures: 0,
            opened: None,
            is_probing: false,
            delays: DELAYS,
        }))
    }
}

impl CircuitBreaker {
    /// Lets a request pass. While the circuit is open, one at a time passes after each delay.
    ///
    /// # Errors
    /// [`SignerError::Unavailable`] with the reason of the last failure, if the circuit is open.
    pub(super) fn enter(&self, now: Instant) -> Result<Pass<'_>, SignerError> {
        let mut state = self.0.lock();
        if let Some(reason) = state.rejects_at(now) {
            return Err(SignerError::Unavailable(reason));
        }
        let is_probe = state.opened.is_some();
        state.is_probing |= is_probe;

        Ok(Pass {
            breaker: self,
            is_probe,
        })
    }

    /// Why a request would not pass now; `None` if it would.
    pub(super) fn rejects_at(&self, now: Instant) -> Option<Arc<str>> {
        self.0.lock().rejects_at(now)
    }

    /// Why the circuit is open; `None` if it is closed.
    pub(super) fn open_reason(&self) -> Option<Arc<str>> {
        let state = self.0.lock();
        state.opened.as_ref().map(|opened| opened.reason.clone())
    }
}

impl State {
    /// Why a request would not pass now; `None` if it would.
    fn rejects_at(&self, now: Instant) -> Option<Arc<str>> {
        let opened = self.opened.as_ref()?;
        (opened.until > now || self.is_probing).then(|| opened.reason.clone())
    }
}

impl Pass<'_> {
    /// The signer was reached, whatever it answered.
    pub(super) fn reached(self) {
        let mut state = self.breaker.0.lock();
        state.failures = 0;
        state.opened = None;
        state.delays.reset();
    }

    /// The signer was not reached.
    pub(super) fn failed(self, reason: Arc<str>, now: Instant) {
        let mut state = self.breaker.0.lock();
        state.failures = state.failures.saturating_add(1);
        let opens = match &state.opened {
            None => state.failures >= MAX_FAILURES,
            // Requests that were under way when it opened do not prolong it.
            Some(_) => self.is_probe,
        };

        if opens {
            let until = now + state.delays.next_delay();
            state.opened = Some(Opened { until, reason });
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.0.lock().is_probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_signer_is_probed_rarely_and_by_one() {
        let breaker = CircuitBreaker::default();
        let why: Arc<str> = Arc::from("refused");

        for _ in 0..MAX_FAILURES {
            let pass = breaker.enter(Instant::now()).unwrap();
            pass.failed(why.clone(), Instant::now());
        }
        let rejected = breaker.enter(Instant::now()).unwrap_err();
        assert!(matches!(rejected, SignerError::Unavailable(reason) if reason == why));

        tokio::time::advance(Duration::from_secs(2)).await;
        let probe = breaker.enter(Instant::now()).unwrap();
        assert!(breaker.enter(Instant::now()).is_err(), "one at a time");
        drop(probe);
        let probe = breaker.enter(Instant::now()).unwrap();
        probe.failed(why.clone(), Instant::now());
        assert!(breaker.enter(Instant::now()).is_err(), "it is still away");

        tokio::time::advance(Duration::from_secs(60)).await;
        breaker.enter(Instant::now()).unwrap().reached();
        assert!(breaker.open_reason().is_none() && breaker.enter(Instant::now()).is_ok());
    }
}
