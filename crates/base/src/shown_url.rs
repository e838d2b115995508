//! URLs in errors and logs, without the user name and password that they may have.

use std::fmt;

/// Stands for what is left out.
const HIDDEN: &str = "***@";

/// A URL as it may be shown: `https://user:password@host/path` is `https://***@host/path`. It need
/// not be valid, as errors are about those that are not.
#[derive(Clone, PartialEq, Eq)]
pub struct ShownUrl(String);

impl ShownUrl {
    /// Leaves out the user information.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let (scheme, rest) = url.split_at(end_of_scheme(url));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, _) = rest.split_at(end);

        // A password with a slash ends what a parser takes for the host: then all up to the last
        // sign is left out.
        let within = match authority.contains('@') {
            true => authority,
            false if has_port(authority) => "",
            false => rest,
        };
        let shown = match within.rfind('@') {
            Some(at) => {
                let (_, shown) = rest.split_at(at + 1);
                format!("{scheme}{HIDDEN}{shown}")
            }
            None => url.to_owned(),
        };
        Self(shown)
    }
}

/// Where the host may begin: after a scheme and slashes, of which users write too few or too many, and
/// which have no scheme in a redirect. Zero if there are no slashes.
fn end_of_scheme(url: &str) -> usize {
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let rest = url.trim_start_matches(is_of_scheme);
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    match rest.trim_start_matches('/') {
        after if rest.starts_with('/') => url.len() - after.len(),
        _ => 0,
    }
}

/// Whether an authority is a host with a port or without any, not the start of `user:password`.
fn has_port(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((_, "")) => false,
        Some((_, port)) => port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    }
}

impl fmt::Display for ShownUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ShownUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_user_information() {
        for (url, shown) in [
            ("https://user:password@host/a", "https://***@host/a"),
            ("https://user@host:1/a?b=c@d", "https://***@host:1/a?b=c@d"),
            ("http://a@b:c@host", "http://***@host"),
            ("user:password@host", "***@host"),
            ("http://user:pass/word@host/a", "http://***@host/a"),
            ("ftp://user:pass?word@host", "ftp://***@host"),
            ("//user:password@host/a", "//***@host/a"),
            ("https:/user:password@host/a", "https:/***@host/a"),
            ("https:///user:password@host", "https:///***@host"),
            ("user:pass://word@host", "***@host"),
        ] {
            assert_eq!(ShownUrl::new(url).to_string(), shown);
        }
    }

    #[test]
    fn other_urls_are_shown_as_they_are() {
        for url in [
            "https://host/a",
            "https://host:8443/a@b",
            "oci://host/image@sha256:abc",
            "https://[::1]:80/a@b",
            "https://[::1]/a@b",
            "a location",
            "",
        ] {
            assert_eq!(ShownUrl::new(url).to_string(), url);
            assert_eq!(format!("{:?}", ShownUrl::new(url)), format!("{url:?}"));
        }
    }
}
