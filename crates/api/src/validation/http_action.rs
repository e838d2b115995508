//! Rules for the actions of an HTTP route: redirects, fixed responses, rewrites, retries, mirrors
//! and CORS.

use super::Verdict;
use super::header::cors_name;
use super::http_match::{regex, regex_match};
use super::name::{duration, optional_duration, port_number};
use super::path::Path;
use super::virtual_service::destination;
use crate::istio::{
    CorsPolicy, HttpBody, HttpDirectResponse, HttpMatchRequest, HttpMirrorPolicy, HttpRedirect,
    HttpRetry, HttpRewrite, HttpRoute, Percent, RegexRewrite, StringMatch,
};

/// The size from which a body is rejected.
const BODY_LIMIT: usize = 1024 * 1024;
/// The size from which a body causes a warning.
const BODY_WARNING: usize = 100 * 1024;
/// The methods that a cross-origin policy may allow.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*",
];
/// Envoy's retry conditions, for HTTP and for gRPC.
const RETRY_CONDITIONS: [&str; 16] = [
    "5xx",
    "cancelled",
    "connect-failure",
    "deadline-exceeded",
    "envoy-ratelimited",
    "gateway-error",
    "http3-post-connect-failure",
    "internal",
    "refused-stream",
    "reset",
    "reset-before-request",
    "resource-exhausted",
    "retriable-4xx",
    "retriable-headers",
    "retriable-status-codes",
    "unavailable",
];

/// A status that a proxy can respond with.
pub(super) fn http_status(status: i64) -> Result<(), String> {
    // istiod accepts 600, although its message excludes it.
    if (200..=600).contains(&status) {
        return Ok(());
    }
    Err(format!(
        "{status} is not a valid response status; write 200 to 599"
    ))
}

/// Validates a redirect. Only one error is reported, since the errors overlap.
pub(super) fn redirect(
    verdict: &mut Verdict,
    route: &Path<'_>,
    redirect: Option<&HttpRedirect>,
    matches: &[HttpMatchRequest],
) {
    let Some(HttpRedirect {
        uri,
        authority,
        port,
        derive_port,
        scheme,
        redirect_code,
        prefix_rewrite,
    }) = redirect
    else {
        return;
    };

    let at = &route.field("redirect");
    let by_prefix =
        |request: &HttpMatchRequest| matches!(request.uri, None | Some(StringMatch::Prefix(_)));
    let has_port = port.is_some() || derive_port.is_some();

    if port.is_some() && derive_port.is_some() {
        verdict.error(
            &at.field("derivePort"),
            "is set together with port; keep one of them",
        );
    } else if !uri.is_empty() && !prefix_rewrite.is_empty() {
        verdict.error(
            &at.field("prefixRewrite"),
            "is set together with uri; keep one of them",
        );
    } else if !prefix_rewrite.is_empty() && !matches.iter().all(by_prefix) {
        verdict.error(
            &at.field("prefixRewrite"),
            "replaces a prefix, but not every match is by prefix; match with uri.prefix",
        );
    } else if [uri, prefix_rewrite, authority, scheme]
        .into_iter()
        .all(String::is_empty)
        && !has_port
    {
        verdict.error(
            at,
            "changes nothing; set uri, prefixRewrite, authority, scheme, port or derivePort",
        );
    } else if *redirect_code != 0 && !(300..=399).contains(redirect_code) {
        verdict.error(
            &at.field("redirectCode"),
            format!("{redirect_code} is not a redirect; write 300 to 399"),
        );
    } else if !matches!(scheme.as_str(), "" | "http" | "https") {
        verdict.error(
            &at.field("scheme"),
            format!("{scheme:?} is not supported; write http or https"),
        );
    } else if let Some(port) = port.filter(|port| *port > 0) {
        verdict.check(&at.field("port"), port_number(port));
    }
}

/// Validates a fixed response.
pub(super) fn direct_response(
    verdict: &mut Verdict,
    at: &Path<'_>,
    response: Option<&HttpDirectResponse>,
) {
    let Some(HttpDirectResponse { status, body }) = response else {
        return;
    };

    let size = match body {
        None | Some(HttpBody::Unset) => 0,
        Some(HttpBody::String(text)) => text.len(),
        Some(HttpBody::Bytes(bytes)) => bytes.len(),
    };

    if size > BODY_LIMIT {
        verdict.error(
            &at.field("body"),
            format!("is {size} bytes long; at most {BODY_LIMIT} are allowed because every proxy stores it"),
        );
    } else if size > BODY_WARNING {
        verdict.warn(
            &at.field("body"),
            format!("is {size} bytes long, and every proxy stores it; keep it short"),
        );
    }

    verdict.check(&at.field("status"), http_status(i64::from(*status)));
}

/// Validates a rewrite. Only one error is reported, since the errors overlap.
pub(super) fn rewrite(verdict: &mut Verdict, at: &Path<'_>, rewrite: Option<&HttpRewrite>) {
    let Some(HttpRewrite {
        uri,
        authority,
        uri_regex_rewrite,
    }) = rewrite
    else {
        return;
    };

    let Some(RegexRewrite { matches, rewrite }) = uri_regex_rewrite else {
        if uri.is_empty() && authority.is_empty() {
            verdict.error(at, "is empty; set uri, uriRegexRewrite or authority");
        }
        return;
    };

    let by_regex = &at.field("uriRegexRewrite");

    if !uri.is_empty() {
        verdict.error(by_regex, "is set together with uri; keep one of them");
    } else if matches.is_empty() || rewrite.is_empty() {
        let field = if matches.is_empty() {
            "match"
        } else {
            "rewrite"
        };
        verdict.error(
            &by_regex.field(field),
            "is missing; uriRegexRewrite needs match and rewrite",
        );
    } else {
        verdict.check(&by_regex.field("match"), regex(matches));
    }
}

/// Validates the retry policy.
pub(super) fn retries(verdict: &mut Verdict, at: &Path<'_>, retries: Option<&HttpRetry>) {
    let Some(retry) = retries else {
        return;
    };

    let HttpRetry {
        attempts,
        per_try_timeout,
        retry_on,
        retry_remote_localities,
        retry_ignore_previous_hosts: _,
        backoff,
    } = retry;

    if *attempts < 0 {
        verdict.error(
            &at.field("attempts"),
            format!("{attempts} is negative; write 0 or more"),
        );
    }

    if *attempts == 0
        && (per_try_timeout.is_some() || !retry_on.is_empty() || retry_remote_localities.is_some())
    {
        verdict.error(
            &at.field("attempts"),
            "is 0, which turns retries off, but other fields of retries are set; write 1 or more",
        );
    }

    optional_duration(verdict, &at.field("perTryTimeout"), *per_try_timeout);
    optional_duration(verdict, &at.field("backoff"), *backoff);
    if retry_on.is_empty() {
        return;
    }

    for condition in retry_on.split(',') {
        let is_status = condition.parse().is_ok_and(is_known_status);
        if !is_status && !RETRY_CONDITIONS.contains(&condition) {
            verdict.error(
                &at.field("retryOn"),
                format!(
                    "{condition:?} is not a retry condition; write HTTP statuses and Envoy's conditions, such as \
                         503,connect-failure, separated by commas without spaces"
                ),
            );
        }
    }
}

/// Whether Go's HTTP library has a name for a status.
fn is_known_status(status: i32) -> bool {
    matches!(
        status,
        100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451 | 500..=508 | 510 | 511
    )
}

/// Validates mirrors.
pub(super) fn mirrors(verdict: &mut Verdict, at: &Path<'_>, route: &HttpRoute) {
    if let Some(percent) = route.mirror_percent {
        let at = &at.field("mirrorPercent");
        verdict.warn(at, "is deprecated; use mirrorPercentage");
        if percent > 100 {
            verdict.error(at, format!("{percent} is not a percentage; write 0 to 100"));
        }
    }

    mirror_share(
        verdict,
        &at.field("mirrorPercentage"),
        route.mirror_percentage.as_ref(),
    );
    if let Some(mirror) = &route.mirror {
        destination(verdict, &at.field("mirror"), mirror);
    }

    let list = at.field("mirrors");

    for (
        index,
        HttpMirrorPolicy {
            destination: target,
            percentage,
        },
    ) in route.mirrors.iter().enumerate()
    {
        let at = list.item(index);
        let Some(target) = target else {
            verdict.error(
                &at.field("destination"),
                "is missing; write the service that receives the mirrored requests",
            );
            continue;
        };
        destination(verdict, &at.field("destination"), target);
        mirror_share(verdict, &at.field("percentage"), percentage.as_ref());
    }
}

/// Validates the percentage of mirrored requests.
fn mirror_share(verdict: &mut Verdict, at: &Path<'_>, percentage: Option<&Percent>) {
    if let Some(Percent { value }) =
        percentage.filter(|share| !(0.0..=100.0).contains(&share.value))
    {
        verdict.error(
            &at.field("value"),
            format!("{value} is not a percentage; write 0 to 100"),
        );
    }
}

/// Validates the cross-origin policy.
pub(super) fn cors_policy(verdict: &mut Verdict, at: &Path<'_>, policy: Option<&CorsPolicy>) {
    let Some(policy) = policy else {
        return;
    };

    let list = at.field("allowOrigins");

    for (index, origin) in policy.allow_origins.iter().enumerate() {
        let at = &list.item(index);
        if origin.is_empty() {
            verdict.error(
                at,
                "matches nothing; write an origin as exact, prefix or regex",
            );
        } else {
            regex_match(verdict, at, origin);
        }
    }

    let list = at.field("allowMethods");

    for (index, method) in policy.allow_methods.iter().enumerate() {
        if !METHODS.contains(&method.as_str()) {
            verdict.error(
                &list.item(index),
                format!("{method:?} is not a method; write one such as GET, or \"*\" for all"),
            );
        }
    }

    for (field, names) in [
        ("allowHeaders", &policy.allow_headers),
        ("exposeHeaders", &policy.expose_headers),
    ] {
        let list = at.field(field);
        for (index, name) in names.iter().enumerate() {
            verdict.check(&list.item(index), cors_name(name));
        }
    }

    if let Some(age) = policy.max_age {
        let at = &at.field("maxAge");
        verdict.check(at, duration(age));
        if age.as_nanos() % 1_000_000_000 > 0 {
            verdict.error(at, format!("{age} is not a whole number of seconds"));
        }
    }
}
