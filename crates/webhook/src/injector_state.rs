//! Whether pods can be injected at this moment, and if not, why.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use axum::http::StatusCode;
use tokio::sync::watch;

use super::inject::Injector;

/// Whether pods can be injected.
#[derive(Clone)]
pub enum InjectorState {
    /// Injection is switched off, or nothing could ever configure it: there is no such webhook, as with istiod.
    Off(&'static str),
    /// The configuration has not been read yet, and why not.
    Pending(Arc<str>),
    /// The configuration is missing or cannot be used, and none before it was good.
    Failed(Arc<str>),
    /// Pods are injected.
    Ready {
        /// By these rules.
        injector: Arc<Injector>,
        /// Why a later configuration is not used, where there is one.
        refused: Option<Arc<str>>,
    },
}

impl InjectorState {
    /// All labels of [`InjectorState::label`].
    pub const LABELS: [&'static str; 5] = ["off", "pending", "failed", "ready", "stale"];

    /// The state in a word: `off`, `pending`, `failed`, `ready`, or `stale` where a later configuration is not used.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Off(_) => "off",
            Self::Pending(_) => "pending",
            Self::Failed(_) => "failed",
            Self::Ready { refused: None, .. } => "ready",
            Self::Ready { refused: Some(_), .. } => "stale",
        }
    }

    /// What is wrong, if anything is.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Off(_) => None,
            Self::Pending(reason) | Self::Failed(reason) => Some(reason),
            Self::Ready { refused, .. } => refused.as_deref(),
        }
    }

    /// What injects.
    ///
    /// # Errors
    /// When nothing does: how the API server is answered. An answer that admits the pod would start it without its proxy.
    pub fn injector(&self) -> Result<Arc<Injector>, (StatusCode, String)> {
        match self {
            Self::Ready { injector, .. } => Ok(injector.clone()),
            Self::Off(reason) => Err((StatusCode::NOT_FOUND, format!("injection is off: {reason}"))),
            Self::Pending(reason) => {
                Err((StatusCode::SERVICE_UNAVAILABLE, format!("injection is not configured yet: {reason}")))
            }
            Self::Failed(reason) => {
                Err((StatusCode::SERVICE_UNAVAILABLE, format!("injection is not configured: {reason}")))
            }
        }
    }
}

impl fmt::Debug for InjectorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.label(), self.problem())
    }
}

/// The state of the injector, kept by one and read by many.
#[derive(Clone, Debug)]
pub struct CurrentInjector {
    state: Arc<ArcSwap<InjectorState>>,
    /// Tells of changes.
    changed: watch::Sender<()>,
}

impl CurrentInjector {
    /// Begins with this state.
    #[must_use]
    pub fn new(state: InjectorState) -> Self {
        Self { state: Arc::new(ArcSwap::from_pointee(state)), changed: watch::Sender::new(()) }
    }

    /// The state now.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<InjectorState>> {
        self.state.load()
    }

    /// Puts another in its place.
    pub fn store(&self, state: InjectorState) {
        self.state.store(Arc::new(state));
        self.touch();
    }

    /// Tells those who wait that the state, or the rules of its injector, are others now.
    pub fn touch(&self) {
        self.changed.send_replace(());
    }

    /// Changes of the state and of the rules of its injector.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
