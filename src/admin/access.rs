//! Access to debug pages: everyone on the same machine, other callers by the table of rules.
//! Changes are allowed from the same machine only.
//!
//! A request counts as local only by the rule of [`navarch_net::same_machine`], too.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::state::AdminState;
use navarch_api::identity::Caller;
use navarch_api::names::Namespace;
use navarch_net::same_machine::is_of_this_machine;
use navarch_security::authenticate::{Authenticator, Credentials};
use navarch_security::rules::{self, Visibility};

/// The authentication of callers, and which of them are operators.
#[derive(Clone, Debug)]
pub struct DebugAccess {
    /// Authenticates callers.
    pub authenticator: Arc<Authenticator>,
    /// The namespaces whose workloads may see everything: the control plane's, and
    /// `DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES`.
    pub operators: Arc<[Namespace]>,
    /// `ENABLE_DEBUG_ENDPOINT_AUTH`: other callers see their own data only. Default true; else
    /// authenticated callers see everything.
    pub by_namespace: bool,
}

/// The pages that use `POST` without changing anything.
const READING_POSTS: [&str; 2] = ["plan", "view/edges"];

/// Admits a request for a debug page with its visibility, or rejects it.
pub(super) async fn guard(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    if head.method.is_safe() && has_effect(&head.uri) {
        return only_post();
    }

    match visibility(&state, &head).await {
        Ok(Visibility::Nothing) => StatusCode::FORBIDDEN.into_response(),
        Ok(visibility) => {
            head.extensions.insert(visibility);
            next.run(Request::from_parts(head, body)).await
        }
        Err(denied) => denied.into_response(),
    }
}

/// Whether a request for this URI changes something: a link or an image on a page of another site
/// must not, so it takes a POST.
fn has_effect(uri: &Uri) -> bool {
    // Decoded as by the pages themselves: `%70ush` is `push`.
    let wants = |name: &str| match Query::<Vec<(String, String)>>::try_from_uri(uri) {
        Ok(Query(parameters)) => parameters
            .iter()
            .any(|(key, value)| key == name && !value.is_empty()),
        Err(_) => true,
    };
    match page(uri.path()) {
        "adsz" => wants("push"),
        "cachez" => wants("clear"),
        "force_disconnect" => true,
        _ => false,
    }
}

fn only_post() -> Response {
    let text = "this page has an effect: request it with POST, such as navarch request POST\n";
    let allow = [(header::ALLOW, "POST")];
    (StatusCode::METHOD_NOT_ALLOWED, allow, text).into_response()
}

/// What a request may see of the page at its path.
///
/// # Errors
/// The HTTP status for callers without access.
pub(super) async fn visibility(
    state: &AdminState,
    request: &Parts,
) -> Result<Visibility, StatusCode> {
    let peer = request
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map(|ConnectInfo(peer)| *peer);
    let is_loopback = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    if is_loopback && is_of_this_machine(&request.uri, &request.headers) {
        return Ok(Visibility::Everything);
    }

    if !request.method.is_safe() && !READING_POSTS.contains(&page(request.uri.path())) {
        tracing::debug!(
            ?peer,
            path = request.uri.path(),
            "rejected a change from another machine"
        );
        return Err(StatusCode::FORBIDDEN);
    }

    let credentials = Credentials {
        peer,
        certificates: &[],
        headers: &request.headers,
    };

    match state.access.authenticator.admit(credentials).await {
        Ok(_) if !state.access.by_namespace => Ok(Visibility::Everything),
        Ok(caller) => Ok(rules::visibility(
            page(request.uri.path()),
            &caller,
            &state.access.operators,
        )),
        Err(unknown) => {
            tracing::debug!(?peer, %unknown, "caller is not authenticated");
            Err(StatusCode::UNAUTHORIZED)
        }
    }
}

/// The name of the page at a path. The index has the access rule of the list, as does the
/// operators' page with its parts, and all profiles count as one page.
pub(super) fn page(path: &str) -> &str {
    let page = path.trim_start_matches("/debug").trim_matches('/');
    match page.split('/').next() {
        None | Some("" | "assets") => "list",
        Some("pprof") => "pprof",
        Some(_) => page,
    }
}

/// Whether a caller may see all pages.
pub(super) fn is_operator(state: &AdminState, caller: &Caller) -> bool {
    !state.access.by_namespace
        || rules::visibility("list", caller, &state.access.operators) == Visibility::Everything
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_change_something_take_a_post() {
        for (uri, expected) in [
            ("/debug/adsz", false),
            ("/debug/adsz?proxyID=a&push=true", true),
            ("/debug/adsz?push=", false),
            ("/debug/adsz?%70ush=true", true),
            ("/debug/cachez?cle%61r=true", true),
            ("/debug/cachez?sizes=true", false),
            ("/debug/cachez?clear=1", true),
            ("/debug/cachez/?clear=1", true),
            ("/debug/force_disconnect?proxyID=a", true),
            ("/debug/syncz?push=true&clear=true", false),
        ] {
            assert_eq!(has_effect(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
