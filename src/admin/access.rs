//! Access to debug pages: everyone on the same machine, other callers by the table of rules.
//! Changes are allowed from the same machine only.
//!
//! A request counts as local only if its host names this machine: a page in a browser that reaches
//! a forwarded port under another name (DNS rebinding) sends that name as the host.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::state::AdminState;
use navarch_api::identity::Caller;
use navarch_api::names::Namespace;
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

/// The page that uses `POST` without changing anything.
const PLAN_PAGE: &str = "plan";

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
        Err(refused) => refused.into_response(),
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

    if !request.method.is_safe() && page(request.uri.path()) != PLAN_PAGE {
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

/// Whether a request over loopback is from a user of this machine, not from a page of another site
/// in a browser.
#[must_use]
pub fn is_of_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    !is_of_another_site(headers) && names_local_host(uri, headers)
}

/// Whether a browser marks the request as cross-site. Browsers send `Sec-Fetch-Site` only to hosts
/// that they call trustworthy, and `Origin` with requests that could change something.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let is_own = |origin: &HeaderValue| {
        let authority = origin.as_bytes().strip_prefix(b"http://");
        authority.is_some() && authority == host
    };

    sites.any(|site| !matches!(site.as_bytes(), b"none" | b"same-origin"))
        || origins.any(|origin| !is_own(origin))
}

/// Whether a request names this machine as its host: by `localhost` or a loopback address. Another
/// address is one that other machines use, too, as with a forwarded port that they can reach.
fn names_local_host(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host
            .to_str()
            .ok()
            .and_then(|host| host.parse::<Authority>().ok()),
        (Some(_), Some(_)) => return false,
        (None, _) => uri.authority().cloned(),
    };

    // A request without a host is not from a browser.
    let Some(host) = host else {
        return headers.get(header::HOST).is_none();
    };

    // No browser sends user information here.
    if host.as_str().contains('@') {
        return false;
    }

    let is_of_uri = |uri: &Authority| uri.host() == host.host();
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    let is_local = name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback);
    is_local && uri.authority().is_none_or(is_of_uri)
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
    fn only_this_machine_is_meant_by_its_name_or_an_address() {
        let is_meant = |uri: &str, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.parse().unwrap());
            }
            names_local_host(&uri.parse().unwrap(), &headers)
        };

        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:15014",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:8080",
        ] {
            assert!(is_meant("/debug/syncz", &[host]), "{host}");
        }

        assert!(is_meant("/debug/syncz", &[]), "HTTP/1.0");

        for host in [
            "evil.example",
            "0.0.0.0:15014",
            "10.0.0.1:8080",
            "[fd00::1]:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8080",
            "",
            "a b",
            "@localhost",
        ] {
            assert!(!is_meant("/debug/syncz", &[host]), "{host}");
        }

        assert!(!is_meant("/debug/syncz", &["localhost", "evil.example"]));
        assert!(!is_meant("http://evil.example/debug/syncz", &["localhost"]));
        assert!(!is_meant("http://evil.example/debug/syncz", &[]));
    }

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

    #[test]
    fn requests_with_a_foreign_origin_are_not_local() {
        let headers = |origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "localhost:15014".parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            headers
        };

        for origin in [None, Some("http://localhost:15014")] {
            assert!(!is_of_another_site(&headers(origin)), "{origin:?}");
        }
        for origin in [
            "http://evil.example",
            "http://localhost:8080",
            "https://localhost:15014",
            "null",
            "",
        ] {
            assert!(is_of_another_site(&headers(Some(origin))), "{origin:?}");
        }
    }

    #[test]
    fn cross_site_browser_requests_are_not_local() {
        for (site, is_of_another) in [
            (None, false),
            (Some("none"), false),
            (Some("same-origin"), false),
            (Some("cross-site"), true),
            (Some("same-site"), true),
        ] {
            let headers = site.map(|site| {
                (
                    header::HeaderName::from_static("sec-fetch-site"),
                    site.parse().unwrap(),
                )
            });
            assert_eq!(
                is_of_another_site(&headers.into_iter().collect()),
                is_of_another,
                "{site:?}"
            );
        }
    }
}
