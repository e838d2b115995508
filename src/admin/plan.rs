//! `/debug/plan`: what a change would do. Nothing is applied; the push thread is asked what proxies have, and which of it might change.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::STACK;
use navarch_answers::client::Client;
use navarch_answers::mirror::InForce;
use navarch_answers::plan::{part, part_in_force};
use navarch_answers::proposal::Proposal;
use navarch_push::context::PushContext;
use navarch_push::engine::{Interest, ProxyId};
use navarch_push::fact::FactKey;
use navarch_push::resource::ResourceType;
use navarch_push::worker::{Inspect, PushHandle};
use navarch_xds::connections::{ConnectionInfo, Connections, TypeInfo};

/// The most bytes of a proposal.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// How often a plan is begun from what is in force: a push in between has it begun anew.
const TRIES: usize = 3;

/// Who may make a plan now: one at a time, since it takes memory and time as a second control plane would. Clones share it.
#[derive(Clone, Debug)]
pub struct Plans(Arc<Semaphore>);

impl Default for Plans {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Plans {
    /// A turn, given back when it is dropped.
    ///
    /// # Errors
    /// While another has it.
    pub(crate) fn turn(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.0.clone().try_acquire_owned()
    }
}

/// The plan for a [`Proposal`] in the body, on the snapshot in force, for the proxies that are connected.
pub(super) async fn plan(
    State(state): State<AdminState>,
    parameters: Parameters,
    Json(proposal): Json<Proposal>,
) -> Response {
    let Ok(turn) = state.plans.turn() else {
        return (StatusCode::TOO_MANY_REQUESTS, "another plan is being made; try again").into_response();
    };
    let asker = Asker::new(&state.push, &state.connections);
    let (answer, made) = oneshot::channel();
    let work = move || {
        let plan = asker.plan(
            |context, clients, ask| part_in_force(context, clients, &proposal, ask),
            |context, clients| part(context, clients, &proposal),
        );
        // Whoever asked may have gone.
        _ = answer.send(plan);
        drop(turn);
    };
    if let Err(error) = std::thread::Builder::new().name("plan".to_owned()).stack_size(STACK).spawn(work) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    match made.await {
        // Whoever asks several control planes puts their plans together.
        Ok(part) if parameters.contains_key("part") => reply::json(&parameters, &json!(part)),
        Ok(part) => reply::json(&parameters, &json!(part.whole())),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the plan could not be made; see the log").into_response(),
    }
}

/// Makes plans for the connected proxies, from what is in force. To be used on a thread that is none of the runtime.
#[derive(Debug)]
pub(crate) struct Asker {
    push: PushHandle,
    connections: Arc<Connections>,
    runtime: Handle,
}

impl Asker {
    /// To be called within the runtime.
    pub(crate) fn new(push: &PushHandle, connections: &Arc<Connections>) -> Self {
        Self { push: push.clone(), connections: connections.clone(), runtime: Handle::current() }
    }

    /// A plan by `make`; by `make_anew`, which costs what exists, where pushes follow each other so fast that what is in force is never
    /// what was begun with.
    pub(crate) fn plan<T>(
        &self,
        make: impl Fn(&PushContext, Vec<Client>, &dyn Fn(Vec<FactKey>) -> Option<InForce>) -> Option<T>,
        make_anew: impl FnOnce(&PushContext, Vec<Client>) -> T,
    ) -> T {
        for _ in 0..TRIES {
            let (context, proxies) = (self.push.context(), self.connections.list());
            let ask = |facts| self.in_force(&context, &proxies, facts);
            if let Some(plan) = make(&context, proxies.iter().map(client).collect(), &ask) {
                return plan;
            }
        }
        make_anew(&self.push.context(), self.connections.list().iter().map(client).collect())
    }

    /// What proxies have, and which of it might come out different if these facts had other values. `None` where another snapshot than
    /// `context` is in force.
    fn in_force(&self, context: &Arc<PushContext>, proxies: &[ConnectionInfo], facts: Vec<FactKey>) -> Option<InForce> {
        let context = context.clone();
        let of: Vec<(ProxyId, Vec<ResourceType>)> =
            proxies.iter().map(|info| (info.proxy_id, client(info).interests.into_keys().collect())).collect();
        let look = move |inspect: &Inspect<'_>| {
            let engine = inspect.engine;
            if !Arc::ptr_eq(engine.context(), &context) {
                return None;
            }
            Some(InForce::of(engine, &of, &facts))
        };
        // At its end the push thread answers no more.
        self.runtime.block_on(self.push.inspect(look)).ok().flatten()
    }
}

/// A connected proxy with what it asks for; secrets aside, which no answer shows.
pub(crate) fn client(info: &ConnectionInfo) -> Client {
    let interest = |watch: &TypeInfo| (watch.kind, Interest { wildcard: watch.wildcard, names: watch.names.clone() });
    let watches = info.types.iter().filter(|watch| watch.kind != ResourceType::Secret);
    Client { proxy: info.proxy.clone(), interests: watches.map(interest).collect::<BTreeMap<_, _>>() }
}
