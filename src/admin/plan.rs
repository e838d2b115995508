//! `/debug/plan`: the effects of a change. Nothing is applied: it is tried on copies of the state
//! that serves the proxies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};
use tokio::time::Instant;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::STACK;
use navarch_answers::client::Client;
use navarch_answers::mirror::Mirror;
use navarch_answers::plan::part;
use navarch_answers::proposal::Proposal;
use navarch_net::background;
use navarch_push::engine::Interest;
use navarch_push::resource::ResourceType;
use navarch_push::worker::{Inspect, PushHandle};
use navarch_xds::connections::{ConnectionInfo, Connections, TypeInfo};

/// Maximum size of a proposal.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// Allows one plan at a time, since a plan takes as much memory and time as a second control plane.
/// Clones share it.
#[derive(Clone, Debug)]
pub struct Plans(Arc<Semaphore>);

impl Default for Plans {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Plans {
    /// A permit, released when it is dropped.
    ///
    /// # Errors
    /// If another plan is in progress.
    pub(crate) fn turn(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.0.clone().try_acquire_owned()
    }
}

/// The plan for a [`Proposal`] in the body, based on the current configuration and the connected
/// proxies. `Server-Timing` has the duration of each step.
pub(super) async fn plan(
    State(state): State<AdminState>,
    parameters: Parameters,
    Json(proposal): Json<Proposal>,
) -> Response {
    let Ok(turn) = state.plans.turn() else {
        return (
            StatusCode::TOO_MANY_REQUESTS,
            "another plan is in progress; try again",
        )
            .into_response();
    };

    let source = MirrorSource::new(&state.push, &state.connections);
    let (answer, made) = oneshot::channel();
    let work = move || {
        let mut steps = ServerTiming::begin();
        let mut mirror = source.mirror();
        steps.done("copy");
        let part = mirror
            .as_mut()
            .map(|mirror| part(mirror, &proposal, &mut |step| steps.done(step)));
        drop(turn);
        // The caller may have disconnected. The response does not wait until the copies are freed.
        _ = answer.send((part, steps));
    };

    if let Err(error) = background::spawn("plan", STACK, work) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }

    let (part, mut steps) = match made.await {
        Ok((Some(part), steps)) => (part, steps),
        Ok((None, _)) => return reply::ended(),
        Err(_) => {
            let reason = "failed to compute the plan; see the log";
            return (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response();
        }
    };

    // A caller of several control planes merges their plans.
    let reply = match parameters.contains_key("part") {
        true => reply::json(&parameters, &json!(part)),
        false => reply::json(&parameters, &json!(part.whole())),
    };
    steps.done("encode");

    ([("server-timing", steps.to_string())], reply).into_response()
}

/// The duration of each step, for the header `Server-Timing`.
struct ServerTiming {
    since: Instant,
    took: Vec<(&'static str, Duration)>,
}

impl ServerTiming {
    fn begin() -> Self {
        Self {
            since: Instant::now(),
            took: Vec::new(),
        }
    }

    /// Ends a step and begins the next one.
    fn done(&mut self, step: &'static str) {
        let before = std::mem::replace(&mut self.since, Instant::now());
        self.took
            .push((step, self.since.saturating_duration_since(before)));
    }
}

impl fmt::Display for ServerTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (step, took)) in self.took.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{step};dur={:.1}", took.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}

/// Copies the state that serves the connected proxies. Use it on a thread outside the runtime.
#[derive(Debug)]
pub(crate) struct MirrorSource {
    push: PushHandle,
    connections: Arc<Connections>,
    runtime: Handle,
}

impl MirrorSource {
    /// Must be called within the runtime.
    pub(crate) fn new(push: &PushHandle, connections: &Arc<Connections>) -> Self {
        Self {
            push: push.clone(),
            connections: connections.clone(),
            runtime: Handle::current(),
        }
    }

    /// The connected proxies on copies of the mesh state and the engine, which the push thread
    /// makes between two pushes. `None` at its end.
    pub(crate) fn mirror(&self) -> Option<Mirror> {
        let look = |inspect: &Inspect<'_>| (inspect.mesh_state.copy(), inspect.engine.copy());
        let (state, engine) = self.runtime.block_on(self.push.inspect(look)).ok()?;
        let clients = self
            .connections
            .list()
            .iter()
            .map(|info| (info.proxy_id, client(info)))
            .collect();
        Some(Mirror::copied(state, engine, clients))
    }
}

/// A connected proxy with its subscriptions, except secrets, which no response shows.
pub(crate) fn client(info: &ConnectionInfo) -> Client {
    let interest = |watch: &TypeInfo| {
        (
            watch.resource_type,
            Interest {
                wildcard: watch.wildcard,
                names: watch.names.clone(),
            },
        )
    };
    let watches = info
        .types
        .iter()
        .filter(|watch| watch.resource_type != ResourceType::Secret);
    Client {
        proxy: info.proxy.clone(),
        interests: watches.map(interest).collect::<BTreeMap<_, _>>(),
    }
}
