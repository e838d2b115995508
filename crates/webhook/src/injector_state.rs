//! Whether pods can be injected now, and the reason if not.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use axum::http::StatusCode;
use tokio::sync::watch;

use super::inject::Injector;

/// Whether pods can be injected.
#[derive(Clone)]
pub enum InjectorState {
    /// Injection is disabled, or cannot be configured at all. As in istiod, the webhook does not
    /// exist then.
    Off(&'static str),
    /// The configuration is not read yet, and the reason.
    Pending(Arc<str>),
    /// The configuration is missing or invalid, and there was no valid one before.
    Failed(Arc<str>),
    /// Pods are injected.
    Ready {
        /// The injector with the active rules.
        injector: Arc<Injector>,
        /// Why a later configuration was rejected, if there is one.
        rejected: Option<Arc<str>>,
    },
}

impl InjectorState {
    /// All values of [`InjectorState::label`].
    pub const LABELS: [&'static str; 5] = ["off", "pending", "failed", "ready", "stale"];

    /// The state as a metric label: `off`, `pending`, `failed`, `ready`, or `stale` if a later
    /// configuration was rejected.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Off(_) => "off",
            Self::Pending(_) => "pending",
            Self::Failed(_) => "failed",
            Self::Ready { rejected: None, .. } => "ready",
            Self::Ready {
                rejected: Some(_), ..
            } => "stale",
        }
    }

    /// The reason why the state is not `ready`; `None` if it is `ready` or `off`.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Off(_) => None,
            Self::Pending(reason) | Self::Failed(reason) => Some(reason),
            Self::Ready { rejected, .. } => rejected.as_deref(),
        }
    }

    /// The injector.
    ///
    /// # Errors
    /// If there is no injector: the HTTP status and the message for the API server. A response that
    /// admits the pod would start it without its proxy.
    pub fn injector(&self) -> Result<Arc<Injector>, (StatusCode, String)> {
        match self {
            Self::Ready { injector, .. } => Ok(injector.clone()),
            Self::Off(reason) => Err((
                StatusCode::NOT_FOUND,
                format!("injection is disabled: {reason}"),
            )),
            Self::Pending(reason) => Err((
                StatusCode::SERVICE_UNAVAILABLE,
                format!("injection is not configured yet: {reason}"),
            )),
            Self::Failed(reason) => Err((
                StatusCode::SERVICE_UNAVAILABLE,
                format!("injection is not configured: {reason}"),
            )),
        }
    }
}

impl fmt::Debug for InjectorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.label(), self.problem())
    }
}

/// The current state of the injector. One task writes it, many read it.
#[derive(Clone, Debug)]
pub struct CurrentInjector {
    state: Arc<ArcSwap<InjectorState>>,
    /// Notifies receivers of changes.
    changed: watch::Sender<()>,
}

impl CurrentInjector {
    /// Starts with this state.
    #[must_use]
    pub fn new(state: InjectorState) -> Self {
        Self {
            state: Arc::new(ArcSwap::from_pointee(state)),
            changed: watch::Sender::new(()),
        }
    }

    /// Does not block. The guard keeps this state even if another one is stored meanwhile.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<InjectorState>> {
        self.state.load()
    }

    /// Replaces the state, and notifies receivers.
    pub fn store(&self, state: InjectorState) {
        self.state.store(Arc::new(state));
        self.notify();
    }

    /// Notifies receivers that the state, or the rules of its injector, have changed.
    pub fn notify(&self) {
        self.changed.send_replace(());
    }

    /// A receiver for changes of the state and of the injector's rules.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
