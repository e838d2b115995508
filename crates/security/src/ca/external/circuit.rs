//! Breaks the circuit to a signer that is unreachable, so that requests fail at once and nothing
//! piles up; and that of one namespace, if the signer answers only its requests with `UNAVAILABLE`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::signer::SignerError;
use navarch_api::names::Namespace;
use navarch_net::backoff::Backoff;

/// Failures in a row after which the circuit opens: a single one may be a restart.
const MAX_FAILURES: u32 = 3;
/// How long the circuit stays open before one request probes the signer.
const DELAYS: Backoff = Backoff::jittered(Duration::from_secs(1), Duration::from_secs(60));
/// Namespaces with a circuit of their own; requests of further ones are passed on.
const MAX_NAMESPACES: usize = 1024;
/// How long after its last failure a namespace has a circuit: it may request nothing any more.
const KEPT: Duration = Duration::from_mins(10);

/// The circuit to a signer, and one for each namespace that it does not sign for at present.
///
/// The one of the signer counts connections that fail: no request causes these. What a request may
/// have caused counts for its namespace alone. Slow and denied requests do not count.
#[derive(Debug, Default)]
pub(super) struct Circuits {
    signer: Arc<CircuitBreaker>,
    /// Only those with failures since their last success.
    namespaces: Mutex<BTreeMap<Namespace, Arc<CircuitBreaker>>>,
}

/// A request that may be passed on. Dropped without a result it changes nothing.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    circuits: &'a Circuits,
    namespace: &'a Namespace,
    of_signer: CircuitPass,
    /// `None` if the namespace has no circuit.
    of_namespace: Option<CircuitPass>,
}

/// Whether requests are passed on: while the circuit is closed they are, while it is open they fail.
#[derive(Debug)]
struct CircuitBreaker(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Failures since the last success.
    failures: u32,
    /// When the last one was.
    failed_at: Option<Instant>,
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

/// A request that one circuit lets pass.
#[derive(Debug)]
struct CircuitPass {
    breaker: Arc<CircuitBreaker>,
    /// Whether it probes the signer while the circuit is open.
    is_probe: bool,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self(Mutex::new(State {
            failures: 0,
            failed_at: None,
            opened: None,
            is_probing: false,
            delays: DELAYS,
        }))
    }
}

impl Circuits {
    /// Lets a request of a namespace pass. While a circuit is open, one at a time passes after each
    /// delay.
    ///
    /// # Errors
    /// [`SignerError::Unreachable`] or [`SignerError::Unavailable`] with the reason of the last
    /// failure, if the circuit of the signer or that of the namespace is open.
    pub(super) fn enter<'a>(
        &'a self,
        namespace: &'a Namespace,
        now: Instant,
    ) -> Result<Pass<'a>, SignerError> {
        let of_namespace = self.of(namespace).map(|breaker| breaker.enter(now));
        let of_namespace = of_namespace.transpose().map_err(SignerError::Unavailable)?;
        let of_signer = self.signer.clone().enter(now);
        let of_signer = of_signer.map_err(SignerError::Unreachable)?;

        Ok(Pass {
            circuits: self,
            namespace,
            of_signer,
            of_namespace,
        })
    }

    /// Why a request of a namespace would not pass now; `None` if it would.
    pub(super) fn rejects_at(&self, namespace: &Namespace, now: Instant) -> Option<SignerError> {
        let of_signer = self.signer.0.lock().rejects_at(now);
        if let Some(reason) = of_signer {
            return Some(SignerError::Unreachable(reason));
        }
        let of_namespace = self.of(namespace)?.0.lock().rejects_at(now);
        of_namespace.map(SignerError::Unavailable)
    }

    /// Why the circuit of the signer is open; `None` if it is closed.
    pub(super) fn open_reason(&self) -> Option<Arc<str>> {
        self.signer.open_reason()
    }

    /// The namespaces whose circuits are open, with the reasons.
    pub(super) fn open_namespaces(&self, now: Instant) -> Vec<(Namespace, Arc<str>)> {
        let mut namespaces = self.namespaces.lock();
        namespaces.retain(|_, breaker| breaker.has_failed_lately(now));
        let open = namespaces
            .iter()
            .filter_map(|(name, breaker)| Some((name.clone(), breaker.open_reason()?)));
        open.collect()
    }

    /// The circuit of a namespace; `None` if there is none.
    fn of(&self, namespace: &Namespace) -> Option<Arc<CircuitBreaker>> {
        self.namespaces.lock().get(namespace).cloned()
    }

    /// The circuit of a namespace with a failure; `None` if too many have one.
    fn of_failing(&self, namespace: &Namespace, now: Instant) -> Option<Arc<CircuitBreaker>> {
        let mut namespaces = self.namespaces.lock();
        if namespaces.len() >= MAX_NAMESPACES && !namespaces.contains_key(namespace) {
            namespaces.retain(|_, breaker| breaker.has_failed_lately(now));
            if namespaces.len() >= MAX_NAMESPACES {
                return None;
            }
        }
        Some(namespaces.entry(namespace.clone()).or_default().clone())
    }
}

impl CircuitBreaker {
    /// Lets a request pass. While the circuit is open, one at a time passes after each delay;
    /// others get the reason of the last failure.
    fn enter(self: Arc<Self>, now: Instant) -> Result<CircuitPass, Arc<str>> {
        let is_probe = {
            let mut state = self.0.lock();
            if let Some(reason) = state.rejects_at(now) {
                return Err(reason);
            }
            let is_probe = state.opened.is_some();
            state.is_probing |= is_probe;
            is_probe
        };

        Ok(CircuitPass {
            breaker: self,
            is_probe,
        })
    }

    /// Whether it has failed lately, or is about to have its first failure.
    fn has_failed_lately(&self, now: Instant) -> bool {
        let failed_at = self.0.lock().failed_at;
        failed_at.is_none_or(|at| now.saturating_duration_since(at) < KEPT)
    }

    /// Why the circuit is open; `None` if it is closed.
    fn open_reason(&self) -> Option<Arc<str>> {
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
    /// The signer has answered the request, with a certificate or an error of the request.
    pub(super) fn answered(self) {
        self.of_signer.succeeded();
        self.circuits.namespaces.lock().remove(self.namespace);
    }

    /// The signer was reached, and is unavailable for this request.
    pub(super) fn unavailable(self, reason: Arc<str>, now: Instant) {
        self.of_signer.succeeded();
        let pass = match self.of_namespace {
            Some(pass) => Some(pass),
            None => self
                .circuits
                .of_failing(self.namespace, now)
                .map(|breaker| CircuitPass {
                    breaker,
                    is_probe: false,
                }),
        };
        if let Some(pass) = pass {
            pass.failed(reason, now);
        }
    }

    /// The signer was not reached.
    pub(super) fn unreachable(self, reason: Arc<str>, now: Instant) {
        self.of_signer.failed(reason, now);
    }
}

impl CircuitPass {
    fn succeeded(self) {
        let mut state = self.breaker.0.lock();
        state.failures = 0;
        state.opened = None;
        state.delays.reset();
    }

    fn failed(self, reason: Arc<str>, now: Instant) {
        let mut state = self.breaker.0.lock();
        state.failures = state.failures.saturating_add(1);
        state.failed_at = Some(now);
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

impl Drop for CircuitPass {
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
    async fn an_unreachable_signer_is_probed_rarely_and_by_one() {
        let circuits = Circuits::default();
        let shop = Namespace::new("shop");
        let bank = Namespace::new("bank");
        let why: Arc<str> = Arc::from("refused");
        let enter = |namespace| circuits.enter(namespace, Instant::now());

        for _ in 0..MAX_FAILURES {
            let pass = enter(&shop).unwrap();
            pass.unreachable(why.clone(), Instant::now());
        }
        let rejected = enter(&bank).unwrap_err();
        assert!(matches!(rejected, SignerError::Unreachable(reason) if reason == why));

        tokio::time::advance(Duration::from_secs(2)).await;
        let probe = enter(&shop).unwrap();
        assert!(enter(&bank).is_err(), "one at a time");
        drop(probe);
        let probe = enter(&bank).unwrap();
        probe.unreachable(why.clone(), Instant::now());
        assert!(enter(&shop).is_err(), "it is still away");

        tokio::time::advance(Duration::from_secs(60)).await;
        enter(&shop).unwrap().answered();
        assert!(circuits.open_reason().is_none() && enter(&bank).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_backend_is_unavailable_stops_no_other() {
        let circuits = Circuits::default();
        let shop = Namespace::new("shop");
        let bank = Namespace::new("bank");
        let why: Arc<str> = Arc::from("no key");
        let enter = |namespace| circuits.enter(namespace, Instant::now());

        for _ in 0..MAX_FAILURES {
            let pass = enter(&shop).unwrap();
            pass.unavailable(why.clone(), Instant::now());
            enter(&bank).unwrap().answered();
        }
        let rejected = enter(&shop).unwrap_err();
        assert!(matches!(&rejected, SignerError::Unavailable(reason) if *reason == why));
        let looked = circuits.rejects_at(&shop, Instant::now()).unwrap();
        assert_eq!(looked.to_string(), rejected.to_string());
        assert_eq!(
            circuits.open_namespaces(Instant::now()),
            [(shop.clone(), why.clone())]
        );
        assert!(circuits.open_reason().is_none());
        enter(&bank).unwrap().answered();

        // The namespace's own probes reach the signer, and none else waits for them.
        tokio::time::advance(Duration::from_secs(2)).await;
        let probe = enter(&shop).unwrap();
        assert!(enter(&shop).is_err(), "one at a time");
        enter(&bank).unwrap().answered();
        probe.answered();
        assert!(circuits.open_namespaces(Instant::now()).is_empty());
        assert!(circuits.namespaces.lock().is_empty(), "nothing is kept");
        enter(&shop).unwrap().answered();
    }

    #[tokio::test(start_paused = true)]
    async fn the_circuits_of_namespaces_are_bounded() {
        let circuits = Circuits::default();
        for number in 0..MAX_NAMESPACES + 10 {
            let namespace = Namespace::new(format!("n{number}"));
            for _ in 0..MAX_FAILURES {
                if let Ok(pass) = circuits.enter(&namespace, Instant::now()) {
                    pass.unavailable("no key".into(), Instant::now());
                }
            }
        }
        let open = circuits.open_namespaces(Instant::now());
        assert_eq!(open.len(), MAX_NAMESPACES);

        // Namespaces that request nothing any more make room for others.
        tokio::time::advance(KEPT).await;
        let late = Namespace::new("late");
        for _ in 0..MAX_FAILURES {
            let pass = circuits.enter(&late, Instant::now()).unwrap();
            pass.unavailable("no key".into(), Instant::now());
        }
        let open = circuits.open_namespaces(Instant::now());
        assert_eq!(open, [(late, "no key".into())]);
    }
}
