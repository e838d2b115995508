//! Rules of HTTPRoutes as HTTP routes of a VirtualService (istiod's `convertHTTPRoute`).

use super::backends::{Backend, backend};
use super::fault::{Fault, INVALID_FILTER};
use super::filters::{self, Side};
use super::inference_pools::RulePickers;
use super::matches;
use super::route_kinds::RouteName;
use navarch_api::duration::Duration;
use navarch_api::gateway_api::{
    BackendRef, HttpRetry, HttpRouteRule, HttpTimeouts, MirrorFilter, RouteFilter,
};
use navarch_api::istio::{
    Headers, HttpDirectResponse, HttpMirrorPolicy, HttpRetry as Retry, HttpRoute,
    HttpRouteDestination, Percent,
};
use navarch_push::view::View;

/// The retry conditions that are always set.
const RETRIED: [&str; 4] = [
    "connect-failure",
    "refused-stream",
    "unavailable",
    "cancelled",
];
/// Default number of retries.
const ATTEMPTS: i32 = 2;

/// The route of a rule, and its semantics.
#[derive(Clone, Copy)]
pub(super) struct RuleContext<'v, 'a> {
    pub(super) view: &'a View<'v>,
    pub(super) route: &'a RouteName,
    /// Whether references to other namespaces require a grant: those of routes in the mesh do not.
    pub(super) checks_grants: bool,
}

/// A translated rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RuleForms {
    /// One route for each match.
    pub(super) routes: Vec<HttpRoute>,
    pub(super) pickers: RulePickers,
    /// A fault that does not prevent it from being served.
    pub(super) fault: Option<Fault>,
}

/// The routes of a rule.
///
/// # Errors
/// If it cannot be served; then its whole route is not served.
pub(super) fn convert(
    context: RuleContext<'_, '_>,
    rule: &HttpRouteRule,
    position: usize,
) -> Result<RuleForms, Fault> {
    let mut route = HttpRoute {
        name: name_of(context.route, rule.name.as_deref(), position),
        ..HttpRoute::default()
    };
    let mut mirror_fault = None;

    for filter in &rule.filters {
        if let Err(fault) = apply(context, filter, &mut route)? {
            mirror_fault = Some(fault);
        }
    }

    route.retries = rule.retry.as_ref().map(|retry| Box::new(retries(retry)));
    if let Some(timeouts) = &rule.timeouts {
        set_timeouts(timeouts, &mut route);
    }

    let mut forms = RuleForms::default();

    if weight_sum(&rule.backend_refs) == 0 && route.redirect.is_none() {
        route.direct_response = Some(answer_500());
        forms.fault = mirror_fault;
    } else {
        let destinations = destinations(context, &rule.backend_refs)?;
        route.route = destinations.targets;
        forms.pickers = destinations.pickers;
        forms.fault = Fault::joined(destinations.fault, mirror_fault);
    }

    forms.routes = match rule.matches.as_slice() {
        [] => vec![route],
        some => {
            let with = |one| {
                Ok(HttpRoute {
                    matches: vec![matches::http(one)?],
                    ..route.clone()
                })
            };
            some.iter().map(with).collect::<Result<_, Fault>>()?
        }
    };

    Ok(forms)
}

/// The name of the routes of a rule.
pub(super) fn name_of(route: &RouteName, named: Option<&str>, position: usize) -> String {
    let numbered = || format!("{}.{}.{position}", route.name.namespace, route.name.name);
    named.map_or_else(numbered, str::to_owned)
}

/// The response without a destination.
pub(super) fn answer_500() -> Box<HttpDirectResponse> {
    Box::new(HttpDirectResponse {
        status: 500,
        body: None,
    })
}

pub(super) fn weight_sum(backends: &[BackendRef]) -> i64 {
    backends
        .iter()
        .map(|backend| i64::from(backend.weight))
        .sum()
}

/// Applies a filter to a route. The inner value is a fault of a mirror, which does not prevent the
/// route from being served.
fn apply(
    context: RuleContext<'_, '_>,
    filter: &RouteFilter,
    route: &mut HttpRoute,
) -> Result<Result<(), Fault>, Fault> {
    match filter.kind.as_str() {
        "RequestHeaderModifier" | "ResponseHeaderModifier" => {
            modify_headers(&mut route.headers, filter)?
        }
        "RequestRedirect" => {
            route.redirect = filter
                .request_redirect
                .as_ref()
                .map(|redirect| Box::new(filters::redirect(redirect)));
        }
        "RequestMirror" => match filter
            .request_mirror
            .as_ref()
            .map(|declared| mirror(context, declared))
        {
            Some(Ok(mirror)) => route.mirrors.push(mirror),
            Some(Err(fault)) => return Ok(Err(fault)),
            None => {}
        },
        "URLRewrite" => {
            route.rewrite = filter
                .url_rewrite
                .as_ref()
                .and_then(filters::rewrite)
                .map(Box::new);
        }
        "CORS" => {
            route.cors_policy = filter
                .cors
                .as_ref()
                .map(|cors| Box::new(filters::cors(cors)))
        }
        kind => return Err(unsupported(kind)),
    }

    Ok(Ok(()))
}

/// The fault for an unsupported filter.
pub(super) fn unsupported(kind: &str) -> Fault {
    Fault::new(INVALID_FILTER, format!("unsupported filter type {kind:?}"))
}

/// Adds header changes to those of a route or backend.
pub(super) fn modify_headers(
    headers: &mut Option<Box<Headers>>,
    filter: &RouteFilter,
) -> Result<(), Fault> {
    match filter.kind.as_str() {
        "RequestHeaderModifier" => filters::set_headers(
            headers,
            Side::Request,
            filter.request_header_modifier.as_ref(),
        ),
        "ResponseHeaderModifier" => filters::set_headers(
            headers,
            Side::Response,
            filter.response_header_modifier.as_ref(),
        ),
        kind => Err(unsupported(kind)),
    }
}

/// The destination of mirrored requests.
///
/// # Errors
/// If there is none.
pub(super) fn mirror(
    context: RuleContext<'_, '_>,
    declared: &MirrorFilter,
) -> Result<HttpMirrorPolicy, Fault> {
    let Backend {
        destination, fault, ..
    } = backend(
        context.view,
        context.route,
        &declared.backend_ref,
        context.checks_grants,
    )?;

    if let Some(fault) = fault {
        return Err(fault);
    }

    let share = declared
        .fraction
        .map(|share| 100.0 * f64::from(share.numerator) / f64::from(share.denominator));
    let share = share
        .or(declared.percent.map(f64::from))
        .filter(|share| share.is_finite());

    Ok(HttpMirrorPolicy {
        destination: Some(destination),
        percentage: share.map(|value| Percent { value }),
    })
}

/// The retry policy.
fn retries(declared: &HttpRetry) -> Retry {
    let attempts = declared.attempts.unwrap_or(ATTEMPTS);
    let codes = declared.codes.iter().map(ToString::to_string);
    let on: Vec<String> = RETRIED
        .iter()
        .map(|&name| name.to_owned())
        .chain(codes)
        .collect();

    Retry {
        attempts,
        // Without retries there are no retry conditions.
        retry_on: if attempts == 0 {
            String::new()
        } else {
            on.join(",")
        },
        backoff: declared.backoff.as_deref().map(duration),
        ..Retry::default()
    }
}

/// Parses a duration; zero if invalid.
fn duration(text: &str) -> Duration {
    Duration::parse(text).unwrap_or_default()
}

fn set_timeouts(declared: &HttpTimeouts, route: &mut HttpRoute) {
    let set = |text: &Option<String>| text.as_deref().map(duration).filter(|span| !span.is_zero());
    if let Some(request) = set(&declared.request) {
        route.timeout = Some(request);
    }
    if let Some(backend) = set(&declared.backend_request) {
        match &mut route.retries {
            Some(retries) => retries.per_try_timeout = Some(backend),
            None => route.timeout = Some(backend),
        }
    }
}

/// The destinations of a rule.
#[derive(Default)]
pub(super) struct Destinations {
    pub(super) targets: Vec<HttpRouteDestination>,
    pub(super) pickers: RulePickers,
    /// That a backend is missing.
    pub(super) fault: Option<Fault>,
}

/// The destinations of a rule with these backends.
///
/// # Errors
/// If a backend is invalid.
pub(super) fn destinations(
    context: RuleContext<'_, '_>,
    backends: &[BackendRef],
) -> Result<Destinations, Fault> {
    let weighted: Vec<&BackendRef> = backends
        .iter()
        .filter(|backend| backend.weight != 0)
        .collect();
    let is_only = weighted.len() == 1;
    let mut destinations = Destinations::default();

    for reference in weighted {
        let backend = backend(
            context.view,
            context.route,
            &reference.object(),
            context.checks_grants,
        )?;

        destinations.pickers.push(backend.picker);
        destinations.fault = backend.fault.or(destinations.fault);
        let mut target = HttpRouteDestination {
            destination: Some(backend.destination),
            weight: if is_only { 0 } else { reference.weight },
            headers: None,
        };

        for filter in &reference.filters {
            modify_headers(&mut target.headers, filter)?;
        }

        destinations.targets.push(target);
    }

    Ok(destinations)
}
