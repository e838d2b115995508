//! Rules for HTTP routes.

use super::Verdict;
use super::fault::fault;
use super::header::{headers, is_authority};
use super::http_action::{cors_policy, direct_response, mirrors, redirect, retries, rewrite};
use super::http_match::http_match;
use super::name::optional_duration;
use super::path::Path;
use super::virtual_service::{destination, total_weight, weight};
use crate::istio::{HttpRoute, HttpRouteDestination};

/// Validates a route; `of_delegate` is true for a VirtualService without hosts.
pub(super) fn http_route(
    verdict: &mut Verdict,
    at: &Path<'_>,
    route: &HttpRoute,
    of_delegate: bool,
) {
    if of_delegate && route.delegate.is_some() {
        verdict.error(
            &at.field("delegate"),
            "is set in a delegate, which cannot delegate further; write a route",
        );
    }

    if !of_delegate && route.delegate.is_some() {
        delegating(verdict, at, route);
    } else {
        one_action(verdict, at, route);
    }

    let list = at.field("match");
    for (index, request) in route.matches.iter().enumerate() {
        http_match(verdict, &list.item(index), request);
    }

    headers(verdict, &at.field("headers"), route.headers.as_deref());
    one_authority(verdict, at, route);
    cors_policy(
        verdict,
        &at.field("corsPolicy"),
        route.cors_policy.as_deref(),
    );
    fault(verdict, &at.field("fault"), route.fault.as_deref());

    mirrors(verdict, at, route);
    redirect(verdict, at, route.redirect.as_deref(), &route.matches);
    direct_response(
        verdict,
        &at.field("directResponse"),
        route.direct_response.as_deref(),
    );
    retries(verdict, &at.field("retries"), route.retries.as_deref());

    rewrite(verdict, &at.field("rewrite"), route.rewrite.as_deref());
    destinations(verdict, &at.field("route"), &route.route);
    optional_duration(verdict, &at.field("timeout"), route.timeout);
}

/// Rejects fields that a delegating route must not have.
fn delegating(verdict: &mut Verdict, at: &Path<'_>, route: &HttpRoute) {
    for (field, set) in [
        ("redirect", route.redirect.is_some()),
        ("route", !route.route.is_empty()),
    ] {
        if set {
            verdict.error(
                &at.field(field),
                "is set together with delegate, which determines the route; remove one of them",
            );
        }
    }
}

/// Validates that a route has exactly one action, and no field that the action ignores.
fn one_action(verdict: &mut Verdict, at: &Path<'_>, route: &HttpRoute) {
    let action = match (&route.redirect, &route.direct_response) {
        (Some(_), _) => Some("redirect"),
        (None, Some(_)) => Some("directResponse"),
        (None, None) => None,
    };

    if let Some(action) = action {
        let excluded = [
            ("route", !route.route.is_empty()),
            ("fault", route.fault.is_some()),
            ("rewrite", route.rewrite.is_some()),
            (
                "directResponse",
                action == "redirect" && route.direct_response.is_some(),
            ),
        ];

        for (field, _) in excluded.into_iter().filter(|(_, set)| *set) {
            verdict.error(
                &at.field(field),
                format!("is set together with {action}; remove one of them"),
            );
        }
    } else if route.route.is_empty() {
        verdict.error(at, "has no action; set route, redirect or directResponse");
    }

    if route.mirror.is_some() && !route.mirrors.is_empty() {
        verdict.error(
            &at.field("mirrors"),
            "is set together with mirror; remove one of them",
        );
    }
}

/// Rejects a second change of the authority.
fn one_authority(verdict: &mut Verdict, at: &Path<'_>, route: &HttpRoute) {
    let Some(request) = route
        .headers
        .as_ref()
        .and_then(|headers| headers.request.as_ref())
    else {
        return;
    };

    let mut current = route
        .rewrite
        .as_deref()
        .map_or("", |rewrite| rewrite.authority.as_str());
    let headers_at = at.field("headers");
    let request_at = headers_at.field("request");

    for (field, changes) in [("set", &request.set), ("add", &request.add)] {
        let map = request_at.field(field);
        for (name, value) in changes.iter().filter(|(name, _)| is_authority(name)) {
            if !current.is_empty() {
                verdict.error(
                    &map.field(name),
                    format!("sets the authority to {value:?}, but it is already set to {current:?}; set it once"),
                );
                return;
            }
            current = value;
        }
    }
}

/// Validates the destinations of requests.
fn destinations(verdict: &mut Verdict, at: &Path<'_>, destinations: &[HttpRouteDestination]) {
    for (index, one) in destinations.iter().enumerate() {
        let HttpRouteDestination {
            destination: target,
            weight: share,
            headers: changes,
        } = one;
        let at = &at.item(index);

        match target {
            Some(target) => destination(verdict, &at.field("destination"), target),
            None => verdict.error(
                &at.field("destination"),
                "is missing; write the service to go to",
            ),
        }

        headers(verdict, &at.field("headers"), changes.as_deref());
        weight(verdict, at, *share);
    }

    total_weight(
        verdict,
        at,
        destinations.iter().map(|destination| destination.weight),
    );
}
