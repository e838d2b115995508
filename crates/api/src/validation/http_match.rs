//! Rules for match conditions of HTTP requests.

use std::collections::BTreeMap;

use super::Verdict;
use super::header::match_name;
use super::name::{is_dns_label, labels, port_number};
use super::path::Path;
use super::re2;
use super::virtual_service::gateway_names;
use crate::istio::{HttpMatchRequest, StringMatch};

/// The maximum length of a regular expression, in bytes: every proxy's limit on compiled size
/// accepts it.
const REGEX_LIMIT: usize = 1024;

/// Validates a match.
pub(super) fn http_match(verdict: &mut Verdict, at: &Path<'_>, request: &HttpMatchRequest) {
    let HttpMatchRequest {
        name: _,
        uri,
        scheme,
        method,
        authority,
        headers,
        port,
        source_labels,
        gateways,
        query_params,
        ignore_uri_case: _,
        without_headers,
        source_namespace,
        stat_prefix: _,
    } = request;

    header_matches(verdict, &at.field("headers"), headers, |_| false);

    // A `*` here is not an expression: it matches any value.
    let any = |value: &StringMatch| matches!(value, StringMatch::Regex(text) if text == "*");
    header_matches(verdict, &at.field("withoutHeaders"), without_headers, any);

    // Only the path may have an empty prefix, which Envoy matches with any path.
    if let Some(uri) = uri {
        regex_match(verdict, &at.field("uri"), uri);
    }

    for (field, value) in [
        ("scheme", scheme),
        ("method", method),
        ("authority", authority),
    ] {
        if let Some(value) = value {
            string_match(verdict, &at.field(field), value);
        }
    }

    let parameters = at.field("queryParams");
    for (name, value) in query_params {
        string_match(verdict, &parameters.field(name), value);
    }

    if *port != 0 {
        verdict.check(&at.field("port"), port_number(*port));
    }

    labels(verdict, &at.field("sourceLabels"), source_labels);
    let mut inner = Verdict::default();
    gateway_names(&mut inner, &at.field("gateways"), gateways);
    verdict.extend_errors(inner);

    if !source_namespace.is_empty() && !is_dns_label(source_namespace) {
        verdict.error(
            &at.field("sourceNamespace"),
            format!("{source_namespace:?} is not the name of a namespace"),
        );
    }
}

/// Validates matches of headers; `unchecked` returns whether a value needs no check.
fn header_matches(
    verdict: &mut Verdict,
    at: &Path<'_>,
    headers: &BTreeMap<String, StringMatch>,
    unchecked: fn(&StringMatch) -> bool,
) {
    for (name, value) in headers {
        let at = &at.field(name);
        verdict.check(at, match_name(name));
        if !unchecked(value) {
            string_match(verdict, at, value);
        }
    }
}

/// Validates a condition on a text.
fn string_match(verdict: &mut Verdict, at: &Path<'_>, value: &StringMatch) {
    match value {
        StringMatch::Prefix(text) if text.is_empty() => {
            verdict.error(
                &at.field("prefix"),
                "is empty; write a prefix, or leave the match out",
            );
        }
        StringMatch::Unset | StringMatch::Exact(_) | StringMatch::Prefix(_) => {}
        StringMatch::Regex(_) => regex_match(verdict, at, value),
    }
}

/// Validates the expression of a condition, if it has one.
pub(super) fn regex_match(verdict: &mut Verdict, at: &Path<'_>, value: &StringMatch) {
    if let StringMatch::Regex(expression) = value {
        verdict.check(&at.field("regex"), regex(expression));
    }
}

/// A regular expression that proxies can compile.
pub(super) fn regex(expression: &str) -> Result<(), String> {
    if expression.is_empty() {
        return Err("is empty; write an expression, or leave the match out".to_owned());
    }
    if expression.len() > REGEX_LIMIT {
        return Err(format!(
            "is {} bytes long; an expression has at most {REGEX_LIMIT}",
            expression.len()
        ));
    }
    re2::check(expression)
        .map_err(|reason| format!("{expression:?} is not an RE2 expression: {reason}"))
}
