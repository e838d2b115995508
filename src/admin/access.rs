//! Who may look: every one from the same machine, else whoever the table of rules lets.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::state::AdminState;
use crate::api::names::Namespace;
use crate::security::authenticate::{Credentials, Gatekeeper};
use crate::security::rules::{self, Sight};

/// Who says who callers are, and which of them are operators.
#[derive(Clone, Debug)]
pub struct DebugAccess {
    /// Says who callers are.
    pub gatekeeper: Arc<Gatekeeper>,
    /// The namespaces whose workloads may see everything: the control plane's, and
    /// `DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES`.
    pub operators: Arc<[Namespace]>,
}

/// Lets a request for a debug page through, with what it may see noted, or refuses it.
pub(super) async fn guard(State(state): State<AdminState>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer);
    let sight = if peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
        Sight::Everything
    } else {
        let credentials = Credentials { peer, certificates: &[], headers: request.headers() };
        match state.access.gatekeeper.admit(credentials).await {
            Ok(caller) => rules::sight(page(request.uri().path()), &caller, &state.access.operators),
            Err(unknown) => {
                tracing::debug!(?peer, %unknown, "no debug page for strangers");
                return StatusCode::UNAUTHORIZED.into_response();
            }
        }
    };
    if sight == Sight::Nothing {
        return StatusCode::FORBIDDEN.into_response();
    }
    request.extensions_mut().insert(sight);
    next.run(request).await
}

/// The name of the page at a path; the index shows what the list does.
fn page(path: &str) -> &str {
    match path.trim_start_matches("/debug").trim_matches('/') {
        "" => "list",
        page => page,
    }
}
