//! Selection of the route of a request, and its action.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::route_match::PathSpecifier;
use navarch_proto::envoy::config::route::v3::virtual_host::TlsRequirementType;
use navarch_proto::envoy::config::route::v3::{
    RedirectAction, Route, RouteAction, RouteMatch, VirtualHost, route,
};

use super::token::Claims;
use super::{HttpRequest, Outcome, Share, pattern, token};

/// The route of a request in its virtual host: the first that matches. `claims` are those of a
/// valid token.
pub(super) fn find<'a>(
    host: &'a VirtualHost,
    request: &HttpRequest,
    claims: Option<&Claims>,
) -> Option<&'a Route> {
    let headers = all_headers(request);
    let is_for = |wanted: &RouteMatch| {
        // Metadata of other filters is not known; such routes do not match.
        matches(wanted, request, &headers)
            && wanted
                .dynamic_metadata
                .iter()
                .all(|matcher| token::fits(matcher, claims).unwrap_or_default())
    };
    host.routes
        .iter()
        .find(|route| route.r#match.as_ref().is_some_and(is_for))
}

/// Whether a request matches a rule of a filter.
pub(super) fn matches_rule(wanted: &RouteMatch, request: &HttpRequest) -> bool {
    matches(wanted, request, &all_headers(request))
}

/// Whether a virtual host redirects plain HTTP to HTTPS.
pub(super) fn requires_tls(host: &VirtualHost) -> bool {
    host.require_tls == i32::from(TlsRequirementType::All)
}

/// The headers of a request, pseudo-headers included.
fn all_headers(request: &HttpRequest) -> BTreeMap<String, String> {
    let mut headers = request.headers.clone();
    for (name, value) in [
        (":authority", &request.host),
        (":method", &request.method),
        (":path", &request.path),
    ] {
        headers.insert(name.to_owned(), value.clone());
    }
    headers
        .entry(":scheme".to_owned())
        .or_insert_with(|| "http".to_owned());
    headers
}

/// Whether a request matches a route. Runtime fractions are assumed to be 100%.
fn matches(wanted: &RouteMatch, request: &HttpRequest, headers: &BTreeMap<String, String>) -> bool {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let cased = wanted.case_sensitive.unwrap_or(true);
    let fold = |text: &str| {
        if cased {
            text.to_owned()
        } else {
            text.to_ascii_lowercase()
        }
    };

    let path_fits = match &wanted.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => fold(path).starts_with(&fold(prefix)),
        Some(PathSpecifier::Path(whole)) => fold(path) == fold(whole),
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) => {
            let path = fold(path);
            let prefix = fold(prefix);
            path.strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        Some(PathSpecifier::SafeRegex(expression)) => pattern::whole(&expression.regex, path),
        Some(PathSpecifier::ConnectMatcher(_)) => request.method == "CONNECT",
        Some(PathSpecifier::PathMatchPolicy(_)) | None => false,
    };

    path_fits
        && wanted
            .headers
            .iter()
            .all(|matcher| pattern::header(matcher, headers))
        && wanted
            .query_parameters
            .iter()
            .all(|matcher| pattern::parameter(matcher, query))
}

/// The outcome of a route for a request; `share` resolves a cluster.
pub(super) fn act(
    route: &Route,
    request: &HttpRequest,
    share: impl Fn(&str, u32) -> Share,
) -> Outcome {
    match &route.action {
        Some(route::Action::Route(action)) => forward(action, request, share),
        Some(route::Action::Redirect(action)) => redirect(action, request),
        Some(route::Action::DirectResponse(action)) => Outcome::Answered(action.status),
        Some(route::Action::FilterAction(_) | route::Action::NonForwardingAction(_)) | None => {
            Outcome::Closed("the action of the route is not supported".to_owned())
        }
    }
}

fn forward(
    action: &RouteAction,
    request: &HttpRequest,
    share: impl Fn(&str, u32) -> Share,
) -> Outcome {
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => Outcome::Forwarded(vec![share(cluster, 1)]),
        Some(ClusterSpecifier::WeightedClusters(all)) => {
            let parts = all
                .clusters
                .iter()
                .map(|part| share(&part.name, part.weight.unwrap_or_default()));
            Outcome::Forwarded(parts.collect())
        }
        Some(ClusterSpecifier::ClusterHeader(name)) => {
            match request.headers.get(&name.to_ascii_lowercase()) {
                Some(cluster) => Outcome::Forwarded(vec![share(cluster, 1)]),
                None => Outcome::NotFound,
            }
        }
        Some(
            ClusterSpecifier::ClusterSpecifierPlugin(_)
            | ClusterSpecifier::InlineClusterSpecifierPlugin(_),
        )
        | None => Outcome::Closed("the cluster specifier of the route is not supported".to_owned()),
    }
}

/// The location of a redirect.
fn redirect(action: &RedirectAction, request: &HttpRequest) -> Outcome {
    let scheme = match &action.scheme_rewrite_specifier {
        Some(SchemeRewriteSpecifier::HttpsRedirect(true)) => "https",
        Some(SchemeRewriteSpecifier::SchemeRedirect(scheme)) => scheme,
        Some(SchemeRewriteSpecifier::HttpsRedirect(false)) | None => "http",
    };

    let host = if action.host_redirect.is_empty() {
        request.host.as_str()
    } else {
        &action.host_redirect
    };

    let path = match &action.path_rewrite_specifier {
        Some(PathRewriteSpecifier::PathRedirect(path)) if !path.is_empty() => path,
        Some(
            PathRewriteSpecifier::PathRedirect(_)
            | PathRewriteSpecifier::PrefixRewrite(_)
            | PathRewriteSpecifier::RegexRewrite(_)
            | PathRewriteSpecifier::PathRewrite(_),
        )
        | None => &request.path,
    };

    let port = if action.port_redirect == 0 {
        String::new()
    } else {
        format!(":{}", action.port_redirect)
    };

    let status = match action.response_code() {
        RedirectResponseCode::MovedPermanently => 301,
        RedirectResponseCode::Found => 302,
        RedirectResponseCode::SeeOther => 303,
        RedirectResponseCode::TemporaryRedirect => 307,
        RedirectResponseCode::PermanentRedirect => 308,
    };

    Outcome::Redirected {
        status,
        location: format!("{scheme}://{host}{port}{path}"),
    }
}
