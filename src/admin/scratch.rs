//! Questions about the snapshot in force that would occupy the push thread for too long: an engine of their own answers them, on a
//! blocking thread of tokio. Its results are dropped with it.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::state::AdminState;
use navarch_ambient::AmbientTranslator;
use navarch_envoy::EnvoyTranslator;
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, ProxyId, PushCause, Sink};
use navarch_push::proxy::Proxy;
use navarch_push::resource::{Collection, ResourceType};

/// Maximum number of such questions at once; the others wait.
const AT_ONCE: usize = 1;

/// Limits how many of these questions are answered at once.
#[derive(Clone, Debug)]
pub struct PlanLimit(Arc<Semaphore>);

impl Default for PlanLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// Drops what is published: the question reads results from the engine by name.
struct Nowhere;

impl Sink for Nowhere {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// The result of `question` on an engine to which only these proxies are connected. `None` when the process is going down.
pub(super) async fn ask<T: Send + 'static>(
    state: &AdminState,
    proxies: Vec<Arc<Proxy>>,
    question: impl FnOnce(&mut Engine, &[ProxyId]) -> T + Send + 'static,
) -> Option<T> {
    let (turns, context): (PlanLimit, Arc<PushContext>) = (state.turns.clone(), state.push.context());
    let turn = turns.0.acquire_owned().await.ok()?;
    let answer = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let mut engine = Engine::new(context, Arc::new(AmbientTranslator(EnvoyTranslator)));
        let ids: Vec<ProxyId> = proxies.into_iter().map(|proxy| engine.connect(proxy, Arc::new(Nowhere))).collect();
        question(&mut engine, &ids)
    });
    answer.await.ok()
}
