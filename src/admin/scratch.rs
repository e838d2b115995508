//! Queries about the current snapshot that would block the push thread for too long: a separate
//! engine computes them, on a blocking thread of tokio. Its results are dropped with it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::state::AdminState;
use navarch_ambient::AmbientTranslator;
use navarch_envoy::EnvoyTranslator;
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, ProxyId, PushCause, Sink};
use navarch_push::proxy::Proxy;
use navarch_push::resource::{Collection, ResourceType};

/// Maximum number of concurrent queries; others wait.
const MAX_CONCURRENT_QUERIES: usize = 1;
/// Maximum number of queries with a large body that are received or wait for their turn; others wait
/// before their bodies are read.
const MAX_BODIES: usize = 4;

/// Limits concurrent queries.
#[derive(Clone, Debug)]
pub struct PlanLimit {
    queries: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
}

impl Default for PlanLimit {
    fn default() -> Self {
        Self {
            queries: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)),
            bodies: Arc::new(Semaphore::new(MAX_BODIES)),
        }
    }
}

impl PlanLimit {
    /// Waits for other queries; `None` during shutdown.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.queries.clone().acquire_owned().await.ok()
    }

    /// Waits until a large body may be received, which takes memory until it is dropped; `None` during
    /// shutdown.
    pub(super) async fn body(&self) -> Option<OwnedSemaphorePermit> {
        self.bodies.clone().acquire_owned().await.ok()
    }
}

/// Drops what is published: the query reads results from the engine by proxy.
struct NullSink;

impl Sink for NullSink {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// Runs `question` on an engine to which only these proxies are connected. `None` during shutdown.
pub(super) async fn run<T: Send + 'static>(
    state: &AdminState,
    proxies: Vec<Arc<Proxy>>,
    question: impl FnOnce(&mut Engine, &[ProxyId]) -> T + Send + 'static,
) -> Option<T> {
    let context: Arc<PushContext> = state.push.context();
    let turn = state.turns.turn().await?;
    let answer = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let mut engine = Engine::new(context, Arc::new(AmbientTranslator(EnvoyTranslator)));
        let ids: Vec<ProxyId> = proxies
            .into_iter()
            .map(|proxy| engine.connect(proxy, Arc::new(NullSink)))
            .collect();
        question(&mut engine, &ids)
    });
    answer.await.ok()
}
