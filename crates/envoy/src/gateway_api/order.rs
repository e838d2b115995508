//! The order of precedence of rules of the Gateway API, across routes (istiod's `sortHTTPRoutes`).

use std::cmp::Reverse;

use navarch_api::istio::{HttpMatchRequest, HttpRoute, StringMatch};

/// Sorts routes with at most one match each; equal ones keep their order.
pub(super) fn sort(routes: &mut [HttpRoute]) {
    routes.sort_by_key(|route| match route.matches.first() {
        None => (true, Reverse(0), Reverse(0), true, Reverse(0), Reverse(0)),
        Some(first) => (
            false,
            Reverse(rank(first)),
            Reverse(first.uri.as_ref().map_or(0, |uri| uri.text().len())),
            first.method.is_none(),
            Reverse(first.headers.len()),
            Reverse(first.query_params.len()),
        ),
    });
}

/// The specificity of the path match.
fn rank(request: &HttpMatchRequest) -> i8 {
    match &request.uri {
        Some(StringMatch::Exact(_)) => 3,
        Some(StringMatch::Prefix(_)) => 2,
        Some(StringMatch::Regex(_)) => 1,
        Some(StringMatch::Unset) | None => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route by its path and the number of its header matches.
    fn route(uri: StringMatch, headers: usize) -> HttpRoute {
        let headers = (0..headers)
            .map(|number| (number.to_string(), StringMatch::Unset))
            .collect();
        let request = HttpMatchRequest {
            uri: Some(uri),
            headers,
            ..HttpMatchRequest::default()
        };
        HttpRoute {
            matches: vec![request],
            ..HttpRoute::default()
        }
    }

    #[test]
    fn exact_paths_precede_longer_prefixes_and_more_headers() {
        let exact = |text: &str| StringMatch::Exact(text.to_owned());
        let prefix = |text: &str| StringMatch::Prefix(text.to_owned());
        let ordered = [
            route(exact("/a/b"), 0),
            route(exact("/a"), 0),
            route(prefix("/a/b"), 0),
            route(prefix("/a"), 2),
            route(prefix("/a"), 1),
            route(StringMatch::Regex("/.*/long".to_owned()), 0),
            HttpRoute::default(),
        ];
        let mut routes: Vec<_> = ordered.iter().rev().cloned().collect();
        sort(&mut routes);
        assert_eq!(routes, ordered);
    }
}
