//! URLs as Go's `url.ParseRequestURI` parses them, which determines the module addresses that
//! istiod accepts.

use std::net::Ipv6Addr;

/// The scheme of a URL, in lower case; empty if it has none.
///
/// # Errors
/// With what is wrong, where it is neither an absolute address nor an absolute path.
pub(super) fn url_scheme(url: &str) -> Result<String, &'static str> {
    if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("holds control characters, which must be escaped");
    }

    if url == "*" {
        return Ok(String::new());
    }

    let (scheme, rest) = split_scheme(url)?;
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        return if scheme.is_empty() {
            Err("begins with neither a scheme nor /")
        } else {
            Ok(scheme)
        };
    }

    let path = match rest.strip_prefix("//") {
        Some(rest) if !scheme.is_empty() => {
            let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
            check_authority(authority)?;
            rest.strip_prefix(authority)
                .expect("the authority is a prefix")
        }
        Some(_) | None => rest,
    };

    check_escapes(path)?;
    Ok(scheme)
}

/// Splits off the scheme; a text without a scheme stays unchanged.
fn split_scheme(url: &str) -> Result<(String, &str), &'static str> {
    let is_part = |(at, letter): (usize, char)| {
        letter.is_ascii_alphabetic()
            || (at > 0 && (letter.is_ascii_digit() || matches!(letter, '+' | '-' | '.')))
    };
    let end = url.char_indices().find(|found| !is_part(*found));
    match end {
        Some((0, ':')) => Err("has an empty scheme before the first colon"),
        Some((at, ':')) => {
            let (scheme, rest) = url.split_at(at);
            Ok((
                scheme.to_ascii_lowercase(),
                rest.strip_prefix(':').expect("the scheme ends at a colon"),
            ))
        }
        Some(_) | None => Ok((String::new(), url)),
    }
}

/// Checks user, host and port.
fn check_authority(authority: &str) -> Result<(), &'static str> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let is_allowed = |byte: u8| {
                byte.is_ascii_alphanumeric()
                    || b"-._:~!$&'()*+,;=%@".contains(&byte)
                    || !byte.is_ascii()
            };
            if !user.bytes().all(is_allowed) {
                return Err("has a user name with characters that must be escaped");
            }
            check_escapes(user)?;
            host
        }
        None => authority,
    };

    let (name, port) = if let Some(literal) = host.strip_prefix('[') {
        let Some((literal, port)) = literal.rsplit_once(']') else {
            return Err("has an open bracket in its host");
        };
        // An escaped percent sign begins the zone.
        let address = literal
            .split_once("%25")
            .map_or(literal, |(address, _)| address);
        if address.parse::<Ipv6Addr>().is_err() {
            return Err("has brackets in its host that enclose no IPv6 address");
        }
        (literal, port)
    } else if host.contains('[') {
        return Err("has a bracket within its host; only an IPv6 address stands in brackets");
    } else {
        let at = host.rfind(':').unwrap_or(host.len());
        host.split_at_checked(at).unwrap_or((host, ""))
    };

    let is_port = |port: &str| port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
    if !is_port(port) {
        return Err("has a port that is not a number");
    }

    if !host.starts_with('[') && name.contains(':') {
        return Err("has several colons in its host; write an IPv6 address in brackets");
    }

    let is_foreign = |byte: u8| byte == b' ' || b"#%/?@\\^`{|}".contains(&byte);

    // In brackets, a zone may be escaped.
    if name
        .bytes()
        .any(|byte| is_foreign(byte) && !(byte == b'%' && host.starts_with('[')))
    {
        return Err("has invalid characters in its host");
    }
    check_escapes(name)
}

/// Whether the text contains only digits, or is empty.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks that every percent sign has two hex digits after it.
fn check_escapes(text: &str) -> Result<(), &'static str> {
    let hex = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
    let complete = text.split('%').skip(1).all(|part| {
        let mut bytes = part.bytes();
        hex(bytes.next()) && hex(bytes.next())
    });
    if complete {
        Ok(())
    } else {
        Err("has a percent sign that is not followed by two hex digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_schemes_are_parsed_and_invalid_uris_rejected() {
        for (url, scheme) in [
            ("OCI://a.example:80/b?c#d", "oci"),
            ("http://[::1]:80/x", "http"),
            ("http://[fe80::1%25en0]/x", "http"),
            ("http://u:p@a/x%20y", "http"),
            ("x:80", "x"),
            ("localhost:5000/image", "localhost"),
            ("/a b", ""),
            ("//a/%41", ""),
            ("*", ""),
            ("file:///a", "file"),
        ] {
            assert_eq!(url_scheme(url).as_deref(), Ok(scheme), "{url}");
        }

        for url in [
            ":a",
            "a",
            "[",
            "a/b:c",
            "http://a:b/",
            "http://a:1:2",
            "http://{a}",
            "http://[::1/",
            "http://[a]/",
            "http://[10.0.0.1]/",
            "http://a[b]/",
            "http://a/%z",
            "http://a b/",
            "http://<>@a/",
            "a\u{1}:b",
            "1http://a",
        ] {
            assert!(url_scheme(url).is_err(), "{url}");
        }
    }
}
