//! `/debug/plan`: what a change would do. Nothing is applied, and the push thread is not asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::STACK;
use navarch_answers::client::Client;
use navarch_answers::plan::part as make;
use navarch_answers::proposal::Proposal;
use navarch_push::engine::Interest;
use navarch_push::resource::ResourceType;
use navarch_xds::connections::{ConnectionInfo, TypeInfo};

/// The most bytes of a proposal.
pub(super) const MAX_BYTES: usize = 4 << 20;

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
    let context = state.push.context();
    let clients: Vec<Client> = state.connections.list().iter().map(client).collect();
    let (answer, made) = oneshot::channel();
    let work = move || {
        let plan = make(&context, clients, &proposal);
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

/// A connected proxy with what it asks for; secrets aside, which no answer shows.
pub(crate) fn client(info: &ConnectionInfo) -> Client {
    let interest = |watch: &TypeInfo| (watch.kind, Interest { wildcard: watch.wildcard, names: watch.names.clone() });
    let watches = info.types.iter().filter(|watch| watch.kind != ResourceType::Secret);
    Client { proxy: info.proxy.clone(), interests: watches.map(interest).collect::<BTreeMap<_, _>>() }
}
