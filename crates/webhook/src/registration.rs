//! Keeps Navarch's own webhook configurations up to date in the API server.
//!
//! The label `istio.io/rev` selects the configurations. `caBundle` is restored when another writer
//! edits it; validation fails closed (`failurePolicy: Fail`) once a trial has shown that invalid
//! objects are rejected. Only differences are written, so replicas with the same state do not
//! write.

mod bundle;
mod hooks;
mod look;
mod rollover;
mod trial;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use bundle::Grace;
pub use hooks::HookKind;
pub use look::{FoundWebhooks, look};
use navarch_net::backoff::Backoff;
pub use rollover::{Announcements, Rollover, rollover};
use trial::TrialError;

/// The label that names a revision.
const REVISION: &str = "istio.io/rev";
/// Retry delays.
const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));
/// Failed trials before a warning is logged: about 25 seconds, as the API server notices the
/// webhook with a delay.
const MAX_TRIALS: u32 = 8;
/// Maximum writes of one configuration within [`WRITE_WINDOW`], so that Navarch does not fight
/// another writer forever.
const MAX_WRITES: usize = 10;
/// See [`MAX_WRITES`].
const WRITE_WINDOW: Duration = Duration::from_secs(60);
/// Timeout of a call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a call to the API server failed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    /// The API server returned an error, or is unreachable.
    #[error(transparent)]
    Api(kube::Error),
    /// The API server takes too long.
    #[error("the API server does not respond")]
    TimedOut,
}

/// Maintains the webhook configurations of one kind.
#[derive(Clone)]
pub struct Registration {
    /// The API server.
    pub client: Client,
    /// The kind of configurations.
    pub kind: HookKind,
    /// The revision of this control plane.
    pub revision: String,
    /// The namespace of this control plane.
    pub namespace: String,
    /// The roots of the control plane's certificate, as PEM.
    pub roots: watch::Receiver<Arc<str>>,
    /// How long foreign or former roots are kept.
    pub grace: Duration,
    /// Counts updates of the configurations, by success.
    pub metrics: Metrics,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("kind", &self.kind)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// The state of the configurations and of pending work.
#[derive(Debug, Default)]
struct State {
    /// The configurations by name.
    known: BTreeMap<String, DynamicObject>,
    /// The names of an unfinished list.
    listed: Vec<String>,
    /// Whether a trial has shown that invalid objects are rejected.
    is_tried: bool,
    /// Number of failed trials.
    trials: u32,
    /// Foreign roots, with the time when each was first seen.
    grace: Grace,
    /// Recent writes of each configuration.
    written: BTreeMap<String, VecDeque<Instant>>,
    /// When to reconcile without a change.
    again: Option<Instant>,
}

impl Registration {
    /// Maintains the configurations until `stop` is cancelled. `registered` receives the roots that
    /// are in all of them.
    pub async fn run(mut self, registered: watch::Sender<Arc<str>>, stop: CancellationToken) {
        let resource = resource(self.kind);
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let config = watcher::Config::default().labels(&format!("{REVISION}={}", self.revision));
        let mut events = std::pin::pin!(watcher(api.clone(), config).default_backoff());
        let mut state = State::default();
        let mut backoff = RETRY;
        let mut is_synced = false;

        loop {
            let again = state.again;
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = self.roots.changed() => {}
                () = wake(again) => state.again = None,
                event = events.next() => match event {
                    Some(Ok(event)) => is_synced |= state.take(event),
                    Some(Err(error)) => {
                        tracing::warn!(kind = ?self.kind, %error, "failed to watch webhook configurations");
                        continue;
                    }
                    None => return,
                },
            }

            if is_synced {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.settle(&api, &mut state, &mut backoff, &registered) => {}
                }
            }
        }
    }

    /// Reconciles all configurations.
    async fn settle(
        &self,
        api: &Api<DynamicObject>,
        state: &mut State,
        backoff: &mut Backoff,
        registered: &watch::Sender<Arc<str>>,
    ) {
        let roots = self.roots.borrow().clone();
        if roots.is_empty() {
            return;
        }

        let mut all_well = true;

        for (name, found) in state.known.clone() {
            let mut wanted = found.clone();
            let until =
                hooks::set_bundle(self.kind, &mut wanted, &roots, &mut state.grace, self.grace);
            state.schedule_reconcile(until);

            if self.kind == HookKind::Validating && hooks::is_open(&wanted) {
                if !state.is_tried && hooks::contains_roots(self.kind, &found, &roots) {
                    let outcome = trial::run(&self.client, &self.namespace, &self.revision).await;
                    state.apply_trial(outcome);
                }
                if state.is_tried {
                    hooks::close(&mut wanted);
                } else {
                    all_well = false;
                }
            }

            if wanted == found || !state.may_write(&name) {
                continue;
            }

            match self.write(api, &name, &wanted).await {
                Ok(now) => _ = state.known.insert(name, now),
                Err(error) => {
                    tracing::warn!(kind = ?self.kind, name, %error, "failed to update the webhook configuration");
                    all_well = false;
                }
            }
        }

        if state
            .known
            .values()
            .all(|found| hooks::contains_roots(self.kind, found, &roots))
        {
            registered
                .send_if_modified(|current| std::mem::replace(current, roots.clone()) != roots);
        }

        if all_well {
            backoff.reset();
        } else {
            state.schedule_reconcile(Some(Instant::now() + backoff.next_delay()));
        }
    }

    /// Replaces the observed version of a configuration; one of two concurrent writers fails.
    async fn write(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        wanted: &DynamicObject,
    ) -> Result<DynamicObject, CallError> {
        let parameters = PostParams::default();
        let outcome =
            tokio::time::timeout(CALL_TIMEOUT, api.replace(name, &parameters, wanted)).await;
        let is_good = matches!(outcome, Ok(Ok(_)));
        match self.kind {
            HookKind::Mutating => self.metrics.injection_update(name, is_good),
            HookKind::Validating => self.metrics.validation_update(is_good),
        }
        match outcome {
            Ok(Ok(now)) => {
                tracing::info!(kind = ?self.kind, name, "webhook configuration updated");
                Ok(now)
            }
            Ok(Err(error)) => Err(CallError::Api(error)),
            Err(_) => Err(CallError::TimedOut),
        }
    }
}

/// The API kind of a webhook configuration.
fn resource(kind: HookKind) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "admissionregistration.k8s.io",
        "v1",
        kind.as_str(),
    ))
}

/// Waits until a time, or forever if there is none.
async fn wake(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl State {
    /// Applies an event; returns whether the initial list is complete with it.
    fn take(&mut self, event: Event<DynamicObject>) -> bool {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.extend(object.metadata.name.clone());
                self.put(object);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.known.retain(|name, _| listed.contains(name));
                return true;
            }
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => {
                _ = self.known.remove(&object.metadata.name.unwrap_or_default())
            }
        }
        false
    }

    fn apply_trial(&mut self, outcome: Result<(), TrialError>) {
        match outcome {
            Ok(()) => {
                tracing::info!("validation webhook works; setting failurePolicy to Fail");
                self.is_tried = true;
            }
            Err(reason) => {
                self.trials += 1;
                if self.trials == MAX_TRIALS {
                    tracing::warn!(
                        %reason,
                        "validation webhook does not work; failurePolicy stays Ignore"
                    );
                } else {
                    tracing::debug!(%reason, "validation webhook does not work yet");
                }
            }
        }
    }

    /// Stores a configuration.
    fn put(&mut self, object: DynamicObject) {
        if let Some(name) = object.metadata.name.clone() {
            self.known.insert(name, object);
        }
    }

    /// Whether a configuration may be written now; counts the write if so, else schedules a retry.
    fn may_write(&mut self, name: &str) -> bool {
        let now = Instant::now();
        let written = self.written.entry(name.to_owned()).or_default();
        written.retain(|at| *at + WRITE_WINDOW > now);
        if written.len() < MAX_WRITES {
            written.push_back(now);
            return true;
        }
        let next = written.front().map(|first| *first + WRITE_WINDOW);
        tracing::warn!(
            name,
            "another writer keeps changing the webhook configuration; pausing updates"
        );
        self.schedule_reconcile(next);
        false
    }

    /// Schedules a reconciliation at this time at the latest.
    fn schedule_reconcile(&mut self, at: Option<Instant>) {
        self.again = match (self.again, at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}
