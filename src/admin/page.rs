//! The operators' page at `/`: three files built from `web/`, which request the debug pages.
//!
//! The files are part of the binary. A content security policy forbids the browser to load anything
//! from other sites, to run inline scripts, and to show the page in a frame.

pub(super) mod changes;
pub(super) mod edges;
pub(super) mod mesh;
pub(super) mod objects;
pub(super) mod proxies;
pub(super) mod replicas;
pub(super) mod resources;
mod rows;
mod service_access;
mod waypoints;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::state::AdminState;
use navarch_base::digest::sha256_hex;

/// The page loads only its own files, and no other page may frame it.
const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Clone, Copy, Debug)]
struct File {
    path: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

const FILES: [File; 4] = [
    File {
        path: "/",
        media: "text/html; charset=utf-8",
        bytes: include_bytes!("page/dist/index.html"),
    },
    File {
        path: "/assets/page.js",
        media: "text/javascript; charset=utf-8",
        bytes: include_bytes!("page/dist/assets/page.js"),
    },
    File {
        path: "/assets/page.css",
        media: "text/css; charset=utf-8",
        bytes: include_bytes!("page/dist/assets/page.css"),
    },
    File {
        path: "/assets/icon.svg",
        media: "image/svg+xml",
        bytes: include_bytes!("page/dist/assets/icon.svg"),
    },
];

/// The files, each at its own path; other paths are not served.
pub(super) fn routes() -> Router<AdminState> {
    FILES.into_iter().fold(Router::new(), |routes, file| {
        let tag = HeaderValue::try_from(format!("\"{}\"", sha256_hex(file.bytes))).ok();
        routes.route(
            file.path,
            get(move |headers: HeaderMap| async move { served(file, tag, &headers) }),
        )
    })
}

/// A file, or 304 if the browser already has it.
fn served(file: File, tag: Option<HeaderValue>, request_headers: &HeaderMap) -> Response {
    let has_it = tag.as_ref().is_some_and(|tag| {
        let tags = request_headers
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .filter_map(|tags| tags.to_str().ok());
        tags.flat_map(|tags| tags.split(','))
            .any(|candidate| candidate.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes())
    });

    let mut response = if has_it {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        file.bytes.into_response()
    };

    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, file.media),
        // Validated at each request, so that the files of a newer Navarch are loaded at once.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, PAGE_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];

    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }

    if let Some(tag) = tag {
        headers.insert(header::ETAG, tag);
    }

    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let tag = HeaderValue::from_static("\"a\"");

        for (value, expected) in [
            ("\"a\"", 304),
            ("\"b\", W/\"a\"", 304),
            ("\"b\"", 200),
            ("a", 200),
        ] {
            let headers =
                HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]);
            let response = served(FILES[0], Some(tag.clone()), &headers);
            assert_eq!(response.status(), expected, "{value}");
            assert!(
                response.headers()[header::CONTENT_SECURITY_POLICY]
                    .to_str()
                    .unwrap()
                    .starts_with("default-src 'none'")
            );
        }
    }

    #[test]
    fn the_page_has_no_external_resources_and_no_inline_code() {
        let page = std::str::from_utf8(FILES[0].bytes).unwrap();
        assert!(
            !page.contains("://") && !page.contains("<style") && !page.contains(" style="),
            "{page}"
        );
        assert_eq!(
            page.matches("<script").count(),
            page.matches("src=\"/assets/").count(),
            "{page}"
        );
        let size: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(size < 150_000, "{size} bytes");
    }
}
