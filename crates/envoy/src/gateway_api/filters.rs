//! Filters of routes (istiod's `createHeadersFilter` and similar functions).

use std::collections::BTreeMap;

use super::fault::{Fault, INVALID_FILTER};
use crate::quote_meta::quote_meta;
use navarch_api::duration::Duration;
use navarch_api::gateway_api::{
    CorsFilter, HeaderFilter, HttpHeader, RedirectFilter, RewriteFilter,
};
use navarch_api::istio::{
    CorsPolicy, HeaderOperations, Headers, HttpRedirect, HttpRewrite, RedirectPortSelection,
    RegexRewrite, StringMatch, UnmatchedPreflights,
};

/// Matches an origin: scheme, host and optionally a port (RFC 6454).
const ANY_ORIGIN: &str = r"^[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+$";

/// The message whose headers are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

/// Sets changes of headers.
///
/// # Errors
/// If a value contains characters that are invalid in headers.
pub(super) fn set_headers(
    headers: &mut Option<Box<Headers>>,
    side: Side,
    filter: Option<&HeaderFilter>,
) -> Result<(), Fault> {
    let Some(filter) = filter else { return Ok(()) };
    let is_good = |value: &str| {
        value
            .bytes()
            .all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
    };

    if let Some(bad) = filter
        .set
        .iter()
        .chain(&filter.add)
        .find(|header| !is_good(&header.value))
    {
        return Err(Fault::new(
            INVALID_FILTER,
            format!("header {:?} value contains invalid characters", bad.name),
        ));
    }

    let operations = HeaderOperations {
        set: by_name(&filter.set),
        add: by_name(&filter.add),
        remove: filter.remove.clone(),
    };
    let headers = headers.get_or_insert_default();

    match side {
        Side::Request => headers.request = Some(operations),
        Side::Response => headers.response = Some(operations),
    }

    Ok(())
}

/// Values by name; of equal names the first is used.
fn by_name(headers: &[HttpHeader]) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for header in headers {
        values
            .entry(header.name.to_lowercase())
            .or_insert_with(|| header.value.clone());
    }
    values
}

pub(super) fn redirect(filter: &RedirectFilter) -> HttpRedirect {
    let port = filter
        .port
        .map(|port| u32::try_from(port).unwrap_or_default());
    let derived = match filter.scheme {
        Some(_) => RedirectPortSelection::FromProtocolDefault,
        None => RedirectPortSelection::FromRequestPort,
    };
    let mut redirect = HttpRedirect {
        redirect_code: u32::try_from(filter.status_code).unwrap_or_default(),
        authority: filter.hostname.clone().unwrap_or_default(),
        scheme: filter.scheme.clone().unwrap_or_default(),
        port,
        derive_port: port.is_none().then_some(derived),
        ..HttpRedirect::default()
    };

    if let Some(path) = &filter.path {
        match path.kind.as_str() {
            "ReplaceFullPath" => redirect.uri = path.replace_full_path.clone().unwrap_or_default(),
            "ReplacePrefixMatch" => {
                redirect.prefix_rewrite = path.replace_prefix_match.clone().unwrap_or_default()
            }
            _ => {}
        }
    }

    redirect
}

/// The rewrite of host and path; `None` if both are unchanged.
pub(super) fn rewrite(filter: &RewriteFilter) -> Option<HttpRewrite> {
    let mut rewrite = HttpRewrite {
        authority: filter.hostname.clone().unwrap_or_default(),
        ..HttpRewrite::default()
    };

    if let Some(path) = &filter.path {
        match path.kind.as_str() {
            "ReplacePrefixMatch" => {
                let prefix = path.replace_prefix_match.as_deref().unwrap_or_default();
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
                // A slash removes the prefix.
                rewrite.uri = if prefix.is_empty() {
                    "/".to_owned()
                } else {
                    prefix.to_owned()
                };
            }
            "ReplaceFullPath" => {
                rewrite.uri_regex_rewrite = Some(RegexRewrite {
                    matches: "/.*".to_owned(),
                    rewrite: path.replace_full_path.clone().unwrap_or_default(),
                });
            }
            _ => {}
        }
    }

    (rewrite != HttpRewrite::default()).then_some(rewrite)
}

pub(super) fn cors(filter: &CorsFilter) -> CorsPolicy {
    let max_age = (filter.max_age > 0).then(|| Duration::from_secs(i64::from(filter.max_age)));
    CorsPolicy {
        allow_origins: filter
            .allow_origins
            .iter()
            .filter(|origin| !origin.is_empty())
            .map(|text| origin(text))
            .collect(),
        allow_credentials: filter.allow_credentials.filter(|allowed| *allowed),
        allow_methods: filter.allow_methods.clone(),
        allow_headers: filter.allow_headers.clone(),
        expose_headers: filter.expose_headers.clone(),
        max_age,
        unmatched_preflights: UnmatchedPreflights::Ignore,
        ..CorsPolicy::default()
    }
}

/// The match of an origin, in which `*` matches anything.
fn origin(text: &str) -> StringMatch {
    match text.split_once('*') {
        None => StringMatch::Exact(text.to_owned()),
        Some(("", "")) => StringMatch::Regex(ANY_ORIGIN.to_owned()),
        Some((prefix, "")) => StringMatch::Prefix(prefix.to_owned()),
        Some(_) => {
            let parts: Vec<String> = text.split('*').map(quote_meta).collect();
            StringMatch::Regex(format!("^{}$", parts.join(".*")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_with_a_star_are_patterns() {
        assert_eq!(
            origin("https://a.example"),
            StringMatch::Exact("https://a.example".to_owned())
        );
        assert_eq!(
            origin("https://*"),
            StringMatch::Prefix("https://".to_owned())
        );
        assert_eq!(
            origin("https://*.example"),
            StringMatch::Regex(r"^https://.*\.example$".to_owned())
        );
        assert_eq!(origin("*"), StringMatch::Regex(ANY_ORIGIN.to_owned()));
    }

    #[test]
    fn the_first_of_equal_headers_counts() {
        let header = |name: &str, value: &str| HttpHeader {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let filter = HeaderFilter {
            set: vec![header("X-A", "1"), header("x-a", "2")],
            ..HeaderFilter::default()
        };
        let mut headers = None;
        set_headers(&mut headers, Side::Request, Some(&filter)).unwrap();
        let set = headers.unwrap().request.unwrap().set;
        assert_eq!(set, BTreeMap::from([("x-a".to_owned(), "1".to_owned())]));
        let bad = HeaderFilter {
            add: vec![header("x", "a\nb")],
            ..HeaderFilter::default()
        };
        assert!(set_headers(&mut None, Side::Response, Some(&bad)).is_err());
    }
}
