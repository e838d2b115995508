//! Whether an HTTP request over loopback comes from a user of the machine.
//!
//! A loopback address alone does not show it: a browser of the same machine, or of an operator who
//! forwards the port, sends requests of pages of other sites. Such a request has the mark of
//! another site, or reached the port by another name (DNS rebinding), which is then its host.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri, header};

/// Whether a request over loopback is from a user of this machine, not from a page of another site
/// in a browser: it names `localhost` or a loopback address as its host. Another address is one
/// that other machines use, too, as with a forwarded port that they can reach.
#[must_use]
pub fn is_of_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    !is_of_another_site(headers) && names_host(uri, headers, is_loopback)
}

/// As [`is_of_this_machine`], but the host may be any address, which no DNS rebinding can send. For
/// requests that a proxy of this machine forwards with the host under which it was reached.
#[must_use]
pub fn is_of_no_other_site(uri: &Uri, headers: &HeaderMap) -> bool {
    !is_of_another_site(headers) && names_host(uri, headers, |_| true)
}

/// Whether a browser marks the request as cross-site. Browsers send `Sec-Fetch-Site` only to hosts
/// that they call trustworthy, and `Origin` with requests that could change something.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let is_own = |origin: &HeaderValue| {
        let authority = origin.as_bytes().strip_prefix(b"http://");
        authority.is_some() && authority == host
    };

    sites.any(|site| !matches!(site.as_bytes(), b"none" | b"same-origin"))
        || origins.any(|origin| !is_own(origin))
}

/// Whether the host of a request is `localhost` or an address that is accepted.
fn names_host(uri: &Uri, headers: &HeaderMap, is_accepted: impl Fn(IpAddr) -> bool) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host
            .to_str()
            .ok()
            .and_then(|host| host.parse::<Authority>().ok()),
        (Some(_), Some(_)) => return false,
        (None, _) => uri.authority().cloned(),
    };

    // A request without a host is not from a browser.
    let Some(host) = host else {
        return headers.get(header::HOST).is_none();
    };

    // No browser sends user information here.
    if host.as_str().contains('@') {
        return false;
    }

    let is_of_uri = |uri: &Authority| uri.host() == host.host();
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    let is_named =
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_accepted);
    is_named && uri.authority().is_none_or(is_of_uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_hosts(hosts: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_this_machine_is_meant_by_its_name_or_an_address() {
        let is_meant = |uri: &str, hosts: &[&str]| {
            is_of_this_machine(&uri.parse().unwrap(), &with_hosts(hosts))
        };

        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:15014",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:8080",
        ] {
            assert!(is_meant("/debug/syncz", &[host]), "{host}");
        }

        assert!(is_meant("/debug/syncz", &[]), "HTTP/1.0");

        for host in [
            "evil.example",
            "0.0.0.0:15014",
            "10.0.0.1:8080",
            "[fd00::1]:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8080",
            "",
            "a b",
            "@localhost",
        ] {
            assert!(!is_meant("/debug/syncz", &[host]), "{host}");
        }

        assert!(!is_meant("/debug/syncz", &["localhost", "evil.example"]));
        assert!(!is_meant("http://evil.example/debug/syncz", &["localhost"]));
        assert!(!is_meant("http://evil.example/debug/syncz", &[]));
    }

    #[test]
    fn a_request_that_a_proxy_forwards_may_name_any_address_but_no_other_name() {
        let uri = Uri::from_static("/metrics");
        for host in [
            "10.0.0.1:15091",
            "[fd00::1]:15091",
            "localhost",
            "127.0.0.1",
        ] {
            assert!(is_of_no_other_site(&uri, &with_hosts(&[host])), "{host}");
        }
        for host in ["evil.example", "10.0.0.1.evil.example", "@10.0.0.1"] {
            assert!(!is_of_no_other_site(&uri, &with_hosts(&[host])), "{host}");
        }

        let mut headers = with_hosts(&["10.0.0.1"]);
        headers.insert(
            header::ORIGIN,
            HeaderValue::from_static("http://evil.example"),
        );
        assert!(!is_of_no_other_site(&uri, &headers));
    }

    #[test]
    fn requests_with_a_foreign_origin_are_not_local() {
        let headers = |origin: Option<&str>| {
            let mut headers = with_hosts(&["localhost:15014"]);
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            headers
        };

        for origin in [None, Some("http://localhost:15014")] {
            assert!(!is_of_another_site(&headers(origin)), "{origin:?}");
        }
        for origin in [
            "http://evil.example",
            "http://localhost:8080",
            "https://localhost:15014",
            "null",
            "",
        ] {
            assert!(is_of_another_site(&headers(Some(origin))), "{origin:?}");
        }
    }

    #[test]
    fn cross_site_browser_requests_are_not_local() {
        for (site, is_of_another) in [
            (None, false),
            (Some("none"), false),
            (Some("same-origin"), false),
            (Some("cross-site"), true),
            (Some("same-site"), true),
        ] {
            let headers = site.map(|site| {
                (
                    header::HeaderName::from_static("sec-fetch-site"),
                    site.parse().unwrap(),
                )
            });
            assert_eq!(
                is_of_another_site(&headers.into_iter().collect()),
                is_of_another,
                "{site:?}"
            );
        }
    }
}
