//! Paths as in Go's HTTP server: one with double slashes or dots is redirected to the clean path.
//! `istioctl version` requests `//version`.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

/// The response to unknown paths: a redirect if the path is not clean, otherwise 404 with Go's
/// text, which istioctl checks.
pub(super) async fn fallback(uri: Uri) -> Response {
    let clean = clean(uri.path());
    if clean == uri.path() {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    let place = uri
        .query()
        .map_or_else(|| clean.clone(), |query| format!("{clean}?{query}"));
    match HeaderValue::try_from(place) {
        Ok(place) => (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, place)]).into_response(),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// A path without empty segments and dots. It begins with exactly one slash, so that it does not
/// redirect to another host.
fn clean(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut clean = format!("/{}", segments.join("/"));
    if clean.len() > 1 && (path.ends_with('/') || path.ends_with("/.")) {
        clean.push('/');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, expected) in [
            ("//version", "/version"),
            ("/debug//syncz", "/debug/syncz"),
            ("/a/./b/../c/", "/a/c/"),
            ("/../../x", "/x"),
            ("//evil.example//", "/evil.example/"),
            ("/", "/"),
            ("/debug/", "/debug/"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
    }
}
