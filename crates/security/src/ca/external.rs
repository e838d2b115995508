//! Another authority signs for workloads; Navarch is its registration authority.
//!
//! ```text
//! caller, identity (authenticated) ─▶ CSR (checked) ─▶ bounds, circuit ─▶ Signer ─▶ chain (checked) ─▶ caller
//!                                                                          └▶ roots ─▶ trust bundle, TLS port
//! ```
//!
//! A signer that is away costs nothing until certificates end: requests fail at once, and its last
//! roots stay trusted. One that is unavailable for a namespace costs only that namespace.

mod circuit;
mod distribution;
mod replicas;
mod report;
mod signers;
mod stored;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::keeper::FindMissing;
use super::metrics::Metrics;
use super::signer::{CheckedRequest, IssuedChain, SignedChain, Signer, SignerError};
use crate::Clock;
use circuit::Circuits;
use distribution::Distribution;
use navarch_api::names::Namespace;
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_net::rate::RateLimit;
use replicas::{Exchange, IDLE_INTERVAL, OwnState};
use report::LastEvents;

pub use distribution::{DistributionRules, SignerRoot};
pub use replicas::Replicas;
pub use report::{ChainLink, SignerReport, UnavailableNamespace};
pub use signers::ExternalSigners;
pub use stored::{StoredRoots, StoredRootsError};

/// Interval of looking which proxies lack a new root.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest such interval, for a short overlap.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Objects in the cluster per request under way: those of requests that are over are being deleted.
const OBJECTS_PER_REQUEST: usize = 4;

/// What one signer is burdened with, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalLimits {
    /// `NAVARCH_SIGNER_REQUESTS`: requests under way at once, half of them at most for one
    /// namespace. Default 64.
    pub at_once: usize,
    /// Requests that wait for their turn, half of them at most for one namespace.
    pub waiting: usize,
    /// `NAVARCH_SIGNER_NAMESPACE_RATE`: certificates of one namespace per second. Default 50.
    pub per_second: u32,
    /// The same at once: ten times as many.
    pub burst: u32,
    /// `NAVARCH_SIGNER_TIMEOUT`: the time for one request, its wait included; Kubernetes has 75 s at
    /// least. Default 30 s.
    pub timeout: Duration,
    /// `MAX_WORKLOAD_CERT_TTL`: a certificate that lives longer is not handed out.
    pub max_lifetime: Duration,
}

/// A signer with its limits, checks and state.
pub struct ExternalAuthority {
    signer: Arc<dyn Signer>,
    limits: ExternalLimits,
    /// Interval of looking which proxies lack a new root.
    look_interval: Duration,
    /// Fair among the namespaces of the certificates: a node's proxy asks for those of many.
    turns: Arc<FairSemaphore<Namespace>>,
    rate: RateLimit<Namespace>,
    circuits: Circuits,
    /// `None` if the signer's roots are configured elsewhere.
    distribution: Option<Distribution>,
    /// The other replicas, whose proxies must trust a new root as well.
    replicas: Option<Replicas>,
    last: Mutex<LastEvents>,
    metrics: Metrics,
    clock: Clock,
}

impl Default for ExternalLimits {
    fn default() -> Self {
        Self {
            at_once: 64,
            waiting: 4096,
            per_second: 50,
            burst: 500,
            timeout: Duration::from_secs(30),
            max_lifetime: Duration::from_hours(24 * 90),
        }
    }
}

impl ExternalLimits {
    /// The objects that a signer may have in the cluster at once: four for each request at once.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.at_once.saturating_mul(OBJECTS_PER_REQUEST)
    }
}

impl std::fmt::Debug for ExternalAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalAuthority")
            .field("signer", &self.signer.name())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl ExternalAuthority {
    /// Signs with this signer. `last` are its roots that proxies trusted at the last stop, in PEM,
    /// empty if there are none: they stay in use until the signer's current ones are known, and
    /// other ones are distributed first.
    #[must_use]
    pub fn new(
        signer: Arc<dyn Signer>,
        limits: ExternalLimits,
        rules: DistributionRules,
        last: &Arc<str>,
        metrics: Metrics,
        clock: Clock,
    ) -> Self {
        let roots = signer.roots();
        let limits = ExternalLimits {
            timeout: limits.timeout.max(signer.min_timeout()),
            ..limits
        };

        let authority = Self {
            turns: FairSemaphore::new(limits.at_once, limits.waiting),
            rate: RateLimit::new(limits.per_second, limits.burst),
            circuits: Circuits::default(),
            distribution: roots.is_some().then(|| Distribution::new(rules, last)),
            replicas: None,
            last: Mutex::default(),
            look_interval: rules.overlap.clamp(MIN_LOOK_INTERVAL, LOOK_INTERVAL),
            signer,
            limits,
            metrics,
            clock,
        };
        authority.take_roots();
        authority
    }

    /// Waits for the proxies of other replicas, too, before a new root is used.
    #[must_use]
    pub fn among(self, replicas: Option<Replicas>) -> Self {
        Self { replicas, ..self }
    }

    /// The name of the signer.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.signer.name()
    }

    /// Has a request signed, within the limits, and checks the certificate.
    ///
    /// # Errors
    /// If the limits are reached, the signer does not sign, the certificate differs from the
    /// request, or proxies do not trust its root yet.
    pub async fn sign(&self, request: &CheckedRequest) -> Result<IssuedChain, SignerError> {
        let outcome = self.attempt(request).await;
        let result = outcome
            .as_ref()
            .map_or_else(SignerError::result, |_| "issued");
        self.metrics.count_signer(self.signer.name(), result);
        self.last.lock().note(&outcome, (self.clock)());

        match &outcome {
            Ok(issued) => tracing::info!(
                signer = self.signer.name(),
                identity = %request.identity(),
                serial = issued.serial,
                "certificate issued"
            ),
            Err(error) => tracing::debug!(
                signer = self.signer.name(),
                identity = %request.identity(),
                error = error as &dyn std::error::Error,
                "no certificate issued"
            ),
        }

        outcome
    }

    async fn attempt(&self, request: &CheckedRequest) -> Result<IssuedChain, SignerError> {
        let begun = Instant::now();
        let end = begun + self.limits.timeout;
        let namespace = request.identity().namespace.clone();
        if !self.rate.admit(&namespace, begun) {
            return Err(SignerError::Rate(namespace));
        }
        if let Some(error) = self.circuits.rejects_at(&namespace, begun) {
            return Err(error);
        }

        let silent = || SignerError::TimedOut(self.limits.timeout);
        let turn = timeout_at(end, self.turns.take(namespace.clone())).await;
        let _turn = turn
            .map_err(|_| SignerError::QueueFull)?
            .map_err(|_| SignerError::QueueFull)?;

        // A circuit may have opened while the request waited.
        let pass = self.circuits.enter(&namespace, Instant::now())?;
        let signed = match timeout_at(end, self.signer.sign(request)).await {
            Err(_) => return Err(silent()),
            Ok(Err(SignerError::Unreachable(why))) => {
                pass.unreachable(why.clone(), Instant::now());
                return Err(SignerError::Unreachable(why));
            }
            Ok(Err(SignerError::Unavailable(why))) => {
                pass.unavailable(why.clone(), Instant::now());
                return Err(SignerError::Unavailable(why));
            }
            // A caller can ask for what no signer is asked for: that closes no circuit.
            Ok(Err(error)) if !error.is_answer() => return Err(error),
            Ok(answered) => {
                pass.answered();
                answered?
            }
        };

        let Some(distribution) = &self.distribution else {
            return request.accept(signed, self.limits.max_lifetime, (self.clock)());
        };
        // Those that were checked and published.
        let signed = SignedChain {
            roots: distribution.pem(),
            ..signed
        };
        let issued = request.accept(signed, self.limits.max_lifetime, (self.clock)())?;
        distribution.check(&issued.root)?;
        Ok(issued)
    }

    /// The signer's last usable roots in PEM; empty if they are not known, or configured elsewhere.
    #[must_use]
    pub fn roots(&self) -> Arc<str> {
        self.distribution
            .as_ref()
            .map_or_else(Arc::default, Distribution::pem)
    }

    /// A watch of the signer's roots that proxies trust, in PEM; `None` if they are configured
    /// elsewhere.
    #[must_use]
    pub fn distributed_roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        self.distribution.as_ref().map(Distribution::distributed)
    }

    /// Waits until the signer's roots are known; at once if they are configured elsewhere.
    pub async fn known(&self) {
        let Some(mut roots) = self.signer.roots() else {
            return;
        };
        loop {
            roots.mark_unchanged();
            self.take_roots();
            if !self.roots().is_empty() {
                return;
            }
            if roots.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Follows the signer's roots: calls `publish` after each change, and then waits until proxies
    /// trust them. Does not return.
    pub async fn follow(&self, find_missing: FindMissing, publish: impl Fn() + Send + Sync) {
        let (Some(mut roots), Some(distribution)) = (self.signer.roots(), &self.distribution)
        else {
            return std::future::pending().await;
        };

        let replicas = self.replicas.as_ref();
        let mut exchange = replicas.map(|replicas| replicas.exchange(self.name()));
        loop {
            roots.mark_unchanged();
            self.take_roots();
            publish();
            if exchange.is_some() {
                // The first report is written at once, so that others wait for the proxies here.
                self.look(distribution, &find_missing, &mut exchange).await;
            }

            loop {
                let pause = match (distribution.waiting_since(), &exchange) {
                    (Some(_), _) => Some(self.look_interval),
                    (None, Some(_)) => Some(IDLE_INTERVAL),
                    (None, None) => None,
                };
                let wait = async {
                    match pause {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = roots.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return std::future::pending().await,
                    },
                    () = wait => self.look(distribution, &find_missing, &mut exchange).await,
                }
            }
        }
    }

    /// Looks which proxies of this replica and of others lack a new root, and marks it as
    /// distributed when it is due. Reports the own ones to the other replicas.
    async fn look(
        &self,
        distribution: &Distribution,
        find_missing: &FindMissing,
        exchange: &mut Option<Exchange<'_>>,
    ) {
        let pem = distribution.pem();
        let age = distribution.waiting_since().map(|since| since.elapsed());
        let mut missing = match age {
            Some(_) => find_missing(&pem),
            None => Vec::new(),
        };

        if let Some(exchange) = exchange {
            let own = OwnState {
                roots: distribution.sorted_pem(),
                age,
                missing: missing.clone(),
            };
            missing.extend(exchange.missing_elsewhere(&own).await);
        }

        distribution.mark_distributed(&pem, missing, Instant::now());
    }

    /// Takes the current roots of the signer, if they are usable.
    fn take_roots(&self) {
        let (Some(roots), Some(distribution)) = (self.signer.roots(), &self.distribution) else {
            return;
        };
        let pem = roots.borrow().clone();
        if !pem.is_empty() && !distribution.take(&pem, Instant::now()) {
            tracing::error!(
                signer = self.signer.name(),
                "the signer's roots are unreadable, or too many; the last ones stay in use"
            );
        }
    }

    /// The state for operators.
    #[must_use]
    pub fn report(&self) -> SignerReport {
        let away = self.circuits.open_reason();
        let unavailable = self
            .circuits
            .open_namespaces(Instant::now())
            .into_iter()
            .map(|(namespace, why)| UnavailableNamespace::new(&namespace, &why))
            .collect();
        let (roots, missing) = self
            .distribution
            .as_ref()
            .map(Distribution::report)
            .unwrap_or_default();
        SignerReport {
            away: away.map(|why| why.as_ref().to_owned()),
            unavailable,
            roots,
            missing,
            ..self.last.lock().report(self.signer.name())
        }
    }
}
