//! Questions to the snapshot in force that are too much for the push thread: answered by an engine of their own, on a thread
//! where blocking does no harm. What is computed is thrown away with it.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::state::AdminState;
use navarch_ambient::AmbientTranslator;
use navarch_envoy::EnvoyTranslator;
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, ProxyId, PushCause, Sink};
use navarch_push::proxy::Proxy;
use navarch_push::resource::{Collection, ResourceType};

/// How many such questions are worked on at once; the others wait.
const AT_ONCE: usize = 1;

/// Whose turn it is to ask what is too much for the push thread.
#[derive(Clone, Debug)]
pub struct PlanLimit(Arc<Semaphore>);

impl Default for PlanLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// Takes what is published, which is asked for by name afterwards.
struct Nowhere;

impl Sink for Nowhere {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// What `question` finds in an engine to which only these proxies are connected. `None` when the process is going down.
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
