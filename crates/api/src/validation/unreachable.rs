//! Warnings about routes that no traffic reaches, since earlier routes match all of it.
//!
//! istiod compares only some conditions of prefix matches, partly in the wrong direction, so that
//! it warns of matches that are reached. Here all conditions of a match are compared: of the
//! matches that istiod compares, one causes a warning if an earlier match has no further condition.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Verdict;
use super::path::Path;
use crate::istio::{HttpMatchRequest, StringMatch, VirtualService};

/// How many matches the later ones are compared with: the cost of a longer list must not be
/// quadratic.
const COMPARED: usize = 256;

/// The start of all these warnings.
pub(super) const NEVER_REACHED: &str = "is never reached ";

/// Warns of routes that no traffic reaches.
pub(super) fn unreachable_rules(verdict: &mut Verdict, spec: &Path<'_>, service: &VirtualService) {
    let at = spec.field("http");
    repeated(
        verdict,
        &at,
        service.http.iter().map(|route| route.matches.as_slice()),
        |request| {
            serde_json::to_string(&HttpMatchRequest {
                name: String::new(),
                ..request.clone()
            })
        },
    );

    covered(verdict, &at, service);
    let text = serde_json::to_string;
    repeated(
        verdict,
        &spec.field("tls"),
        service.tls.iter().map(|route| route.matches.as_slice()),
        text,
    );

    repeated(
        verdict,
        &spec.field("tcp"),
        service.tcp.iter().map(|route| route.matches.as_slice()),
        serde_json::to_string,
    );
}

/// Warns of routes after one without matches, and of repeated matches; `text` returns the compared
/// part of a match.
fn repeated<'a, M: Serialize + 'a>(
    verdict: &mut Verdict,
    at: &Path<'_>,
    routes: impl Iterator<Item = &'a [M]>,
    text: impl Fn(&M) -> serde_json::Result<String>,
) {
    let mut seen = BTreeMap::new();
    let mut catch_all: Option<usize> = None;

    for (index, matches) in routes.enumerate() {
        let at = &at.item(index);

        if let Some(before) = catch_all {
            verdict.warn(
                at,
                format!("is never reached because the earlier route {before} has no match and matches all requests"),
            );
        }

        if matches.is_empty() {
            catch_all = Some(index);
        }

        if catch_all.is_some() {
            continue;
        }

        let mut repeats = 0;
        let list = at.field("match");

        for (place, request) in matches.iter().enumerate() {
            let Ok(key) = text(request) else {
                continue;
            };
            if let Some(before) = seen.get(&key) {
                verdict.warn(
                    &list.item(place),
                    format!("is never reached because route {before} has the same match"),
                );
                repeats += 1;
            } else {
                seen.insert(key, index);
            }
        }

        if repeats == matches.len() {
            verdict.warn(
                at,
                "is never reached because earlier routes have all its matches",
            );
        }
    }
}

/// Warns of HTTP matches that are narrower than an earlier one, but not equal.
fn covered(verdict: &mut Verdict, at: &Path<'_>, service: &VirtualService) {
    let mut before: Vec<(usize, usize, &HttpMatchRequest)> = Vec::new();

    for (index, route) in service.http.iter().enumerate() {
        if route.matches.is_empty() {
            return;
        }

        let route_at = at.item(index);
        let list = route_at.field("match");

        for (place, request) in route.matches.iter().enumerate() {
            let wider = before.iter().find(|(_, _, earlier)| {
                are_compared(earlier, request)
                    && covers(earlier, request)
                    && !covers(request, earlier)
            });

            if let Some((earlier_route, earlier_place, _)) = wider {
                verdict.warn(
                    &list.item(place),
                    format!(
                        "is never reached because the earlier match {earlier_place} of route {earlier_route} is less specific"
                    ),
                );
            }

            if before.len() < COMPARED {
                before.push((index, place, request));
            }
        }
    }
}

/// Whether istiod would compare two matches: they have different prefixes and the same number of
/// conditions.
fn are_compared(a: &HttpMatchRequest, b: &HttpMatchRequest) -> bool {
    let (Some(StringMatch::Prefix(first)), Some(StringMatch::Prefix(second))) = (&a.uri, &b.uri)
    else {
        return false;
    };
    first != second
        && a.port == b.port
        && a.headers.len() == b.headers.len()
        && a.query_params.len() == b.query_params.len()
        && a.without_headers.len() == b.without_headers.len()
}

/// Whether the outer match accepts every request that the inner one accepts.
fn covers(outer: &HttpMatchRequest, inner: &HttpMatchRequest) -> bool {
    (outer.port == 0 || outer.port == inner.port)
        && covers_path(outer, inner)
        && covers_text(outer.scheme.as_ref(), inner.scheme.as_ref())
        && covers_text(outer.method.as_ref(), inner.method.as_ref())
        && covers_text(outer.authority.as_ref(), inner.authority.as_ref())
        && covers_map(&outer.headers, &inner.headers)
        && covers_map(&outer.query_params, &inner.query_params)
        // The inner match must exclude everything that the outer one excludes.
        && outer.without_headers.iter().all(|(name, value)| {
            inner.without_headers.get(name).is_some_and(|excluded| covers_text(Some(excluded), Some(value)))
        })
        && outer.source_labels.iter().all(|(key, value)| inner.source_labels.get(key) == Some(value))
        && (outer.source_namespace.is_empty() || outer.source_namespace == inner.source_namespace)
        && (outer.gateways.is_empty()
            || (!inner.gateways.is_empty() && inner.gateways.iter().all(|name| outer.gateways.contains(name))))
}

/// Whether the outer match accepts every path that the inner one accepts.
fn covers_path(outer: &HttpMatchRequest, inner: &HttpMatchRequest) -> bool {
    if outer.ignore_uri_case {
        return covers_text(
            lowered(outer.uri.as_ref()).as_ref(),
            lowered(inner.uri.as_ref()).as_ref(),
        );
    }
    (!inner.ignore_uri_case || outer.uri.is_none())
        && covers_text(outer.uri.as_ref(), inner.uri.as_ref())
}

/// The match in lower case; regular expressions stay unchanged.
fn lowered(value: Option<&StringMatch>) -> Option<StringMatch> {
    value.map(|value| match value {
        StringMatch::Exact(text) => StringMatch::Exact(text.to_ascii_lowercase()),
        StringMatch::Prefix(text) => StringMatch::Prefix(text.to_ascii_lowercase()),
        StringMatch::Unset | StringMatch::Regex(_) => value.clone(),
    })
}

/// Whether the outer matches, by name, have no condition that the inner ones lack.
fn covers_map(
    outer: &BTreeMap<String, StringMatch>,
    inner: &BTreeMap<String, StringMatch>,
) -> bool {
    outer.iter().all(|(name, value)| {
        inner
            .get(name)
            .is_some_and(|found| covers_text(Some(value), Some(found)))
    })
}

/// Whether the outer match accepts every text that the inner one accepts, as far as can be decided
/// without evaluating expressions.
fn covers_text(outer: Option<&StringMatch>, inner: Option<&StringMatch>) -> bool {
    match (outer, inner) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(StringMatch::Unset), Some(_)) => true,
        (
            Some(StringMatch::Prefix(prefix)),
            Some(StringMatch::Exact(text) | StringMatch::Prefix(text)),
        ) => text.starts_with(prefix.as_str()),
        (Some(StringMatch::Exact(_) | StringMatch::Prefix(_) | StringMatch::Regex(_)), Some(_)) => {
            outer == inner
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The fields warned of in a VirtualService with these HTTP routes.
    fn warned(http: Value) -> Vec<String> {
        let service: VirtualService = serde_json::from_value(json!({ "http": http })).unwrap();
        let mut verdict = Verdict::default();
        unreachable_rules(&mut verdict, &Path::root("spec"), &service);
        assert!(
            verdict
                .warnings
                .iter()
                .all(super::super::Problem::is_of_reach),
            "{:?}",
            verdict.warnings
        );
        verdict
            .warnings
            .into_iter()
            .map(|problem| problem.field)
            .collect()
    }

    #[test]
    fn routes_after_one_without_matches_are_unreachable() {
        assert_eq!(
            warned(json!([{}, {"match": [{"port": 1}]}, {}])),
            ["spec.http[1]", "spec.http[2]"]
        );
        assert_eq!(warned(json!([{"match": [{"port": 1}]}, {}])), [""; 0]);
    }

    #[test]
    fn the_same_match_is_used_once_whatever_its_name() {
        let routes =
            json!([{"match": [{"port": 1}, {"port": 2}]}, {"match": [{"name": "a", "port": 2}]}]);
        assert_eq!(warned(routes), ["spec.http[1].match[0]", "spec.http[1]"]);
    }

    #[test]
    fn a_stricter_match_after_a_broader_one_is_unreachable() {
        let pair = |first: Value, second: Value| {
            !warned(json!([{"match": [first]}, {"match": [second]}])).is_empty()
        };
        let at = |path: &str| json!({"uri": {"prefix": path}});
        assert!(
            pair(at("/a"), at("/ab")) && !pair(at("/ab"), at("/a")) && !pair(at("/a"), at("/b"))
        );
        assert!(!pair(at("/a"), json!({"uri": {"exact": "/a/b"}})));

        assert!(!pair(
            json!({"uri": {"prefix": "/a"}, "authority": {"exact": "x"}}),
            at("/ab")
        ));
        assert!(!pair(
            json!({"uri": {"prefix": "/a"}, "gateways": ["x/y"]}),
            at("/ab")
        ));

        assert!(pair(
            json!({"uri": {"prefix": "/A"}, "ignoreUriCase": true}),
            at("/ab")
        ));
        assert!(!pair(
            at("/a"),
            json!({"uri": {"prefix": "/ab"}, "ignoreUriCase": true})
        ));

        let with =
            |path: &str, field: &str, value: Value| json!({"uri": {"prefix": path}, field: value});
        let one = || json!({"x": {"exact": "1"}});
        assert!(pair(
            with("/a", "headers", json!({"x": {}})),
            with("/ab", "headers", one())
        ));
        assert!(
            !pair(with("/a", "headers", one()), at("/ab"))
                && !pair(at("/a"), with("/ab", "headers", one()))
        );

        assert!(!pair(
            with("/a", "withoutHeaders", one()),
            with("/ab", "port", json!(1))
        ));
        assert!(pair(
            with("/a", "withoutHeaders", one()),
            with("/ab", "withoutHeaders", json!({"x": {}}))
        ));
    }
}
