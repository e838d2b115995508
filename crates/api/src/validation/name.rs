//! Checks of names, addresses, ports, durations and labels. Each returns what is wrong and what
//! would be right.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Verdict;
use super::path::Path;
use crate::duration::Duration;
use crate::hostname::is_ip_address;

/// The maximum length of one label of a domain name, in bytes.
const LABEL_LIMIT: usize = 63;
/// The maximum length of a domain name, in bytes.
const DOMAIN_LIMIT: usize = 255;
/// The maximum length of the prefix of a label key, in bytes.
const KEY_PREFIX_LIMIT: usize = 253;
/// The prefix of the address of a Unix domain socket.
pub(super) const UNIX_PREFIX: &str = "unix://";

/// Whether the text is one label of a domain name: letters, digits and inner hyphens, at most 63
/// bytes.
pub(super) fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_LIMIT && is_label_of_any_length(text)
}

/// As [`is_dns_label`], except for the length.
fn is_label_of_any_length(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Whether the text is a label, `*`, or a label after `*` or `*-`.
fn is_wildcard_label(text: &str) -> bool {
    let rest = text
        .strip_prefix("*-")
        .or_else(|| text.strip_prefix('*'))
        .unwrap_or(text);
    text == "*" || (text.len() <= LABEL_LIMIT && is_label_of_any_length(rest))
}

/// Whether the text is valid in Kubernetes as the name part of a label key, or as a label value.
fn is_qualified_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// A DNS label, such as the name of a namespace, subset or object.
pub(super) fn dns_label(text: &str, what: &str) -> Result<(), String> {
    if is_dns_label(text) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not {what}; write letters, digits and inner hyphens, at most {LABEL_LIMIT}"
    ))
}

/// The rules for every domain name.
fn domain_length(domain: &str) -> Result<(), String> {
    if domain.is_empty() {
        return Err("is empty; write a domain name".to_owned());
    }
    if domain.len() > DOMAIN_LIMIT {
        return Err(format!(
            "{domain:?} is {} bytes long; a domain name has at most {DOMAIN_LIMIT}",
            domain.len()
        ));
    }
    Ok(())
}

/// The labels of a domain name; `whole` is the name in messages.
fn domain_labels(labels: &str, whole: &str) -> Result<(), String> {
    let top = labels.rsplit('.').next().unwrap_or(labels);
    if top.parse::<i64>().is_ok() {
        return Err(format!(
            "{whole:?} is not a domain name: its last label {top:?} is a number"
        ));
    }
    // The last label may be empty: `example.com.` is the unambiguous form.
    if labels.is_empty() {
        return Ok(());
    }
    let checked = labels.strip_suffix('.').unwrap_or(labels);
    match checked.split('.').find(|label| !is_dns_label(label)) {
        None => Ok(()),
        Some(label) => Err(bad_label(whole, label)),
    }
}

/// The message for a bad label in a domain name.
fn bad_label(domain: &str, label: &str) -> String {
    format!(
        "{domain:?} is not a domain name: its label {label:?} must be letters, digits and inner hyphens, at most {LABEL_LIMIT}"
    )
}

/// A domain name without wildcards.
pub(super) fn fqdn(domain: &str) -> Result<(), String> {
    domain_length(domain)?;
    domain_labels(domain, domain)
}

/// A domain name whose first label may be, or start with, a `*`.
pub(super) fn wildcard_domain(domain: &str) -> Result<(), String> {
    domain_length(domain)?;
    let (first, rest) = domain
        .split_once('.')
        .map_or((domain, None), |(first, rest)| (first, Some(rest)));
    if !is_wildcard_label(first) {
        return Err(bad_label(domain, first));
    }
    rest.map_or(Ok(()), |rest| domain_labels(rest, domain))
}

/// A wildcard, if any, that replaces whole labels.
pub(super) fn no_partial_wildcard(host: &str) -> Result<(), String> {
    if host.contains('*') && host.len() != 1 && !host.starts_with("*.") {
        return Err(format!(
            "{host:?} has a wildcard for part of a label; write \"*\" or \"*.\" and a domain"
        ));
    }
    Ok(())
}

/// The SNI that Istio generates for `AUTO_PASSTHROUGH`, or a wildcard domain.
pub(super) fn sni_domain(domain: &str) -> Result<(), String> {
    domain_length(domain)?;
    if !domain.starts_with("outbound_") {
        return wildcard_domain(domain);
    }
    let mut parts = domain.split('_').skip(1).map(|part| part.trim_matches('.'));
    let port = parts.next();
    let host = parts.nth(1);
    let has_digit = port.is_some_and(|port| port.bytes().any(|byte| byte.is_ascii_digit()));
    let has_letter = host.is_some_and(|host| host.bytes().any(|byte| byte.is_ascii_alphabetic()));
    if has_digit && has_letter {
        return Ok(());
    }
    Err(format!(
        "{domain:?} starts as a generated SNI; write it as outbound_.<port>_.<subset>_.<host>"
    ))
}

pub(super) fn ip_address(text: &str) -> Result<(), String> {
    if is_ip_address(text) {
        return Ok(());
    }
    Err(format!("{text:?} is not an IP address"))
}

/// An IP address, or a CIDR block.
pub(super) fn ip_or_cidr(text: &str) -> Result<(), String> {
    let Some((address, bits)) = text.split_once('/') else {
        return ip_address(text);
    };

    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => {
            return Err(format!(
                "{text:?} is not a CIDR block: {address:?} is not an IP address"
            ));
        }
    };

    let plain =
        bits == "0" || (!bits.starts_with('0') && bits.bytes().all(|byte| byte.is_ascii_digit()));

    match bits.parse::<u8>() {
        Ok(bits) if plain && bits <= most => Ok(()),
        Ok(_) | Err(_) => Err(format!(
            "{text:?} is not a CIDR block: the prefix length must be 0 to {most}"
        )),
    }
}

/// The path of a Unix domain socket, without its scheme.
pub(super) fn unix_path(path: &str) -> Result<(), String> {
    if path.starts_with('@') || (path.starts_with('/') && !path.ends_with('/')) {
        return Ok(());
    }
    Err(format!(
        "{path:?} is not the path of a socket; write an absolute path to a file, or \"@\" and an abstract name"
    ))
}

pub(super) fn port_number(port: u32) -> Result<(), String> {
    if (1..=65535).contains(&port) {
        return Ok(());
    }
    Err(format!("{port} is not a port; ports are 1 to 65535"))
}

pub(super) fn port_name(name: &str) -> Result<(), String> {
    dns_label(name, "a port name")
}

/// A duration of whole milliseconds, at least one.
pub(super) fn duration(duration: Duration) -> Result<(), String> {
    if duration < Duration::from_millis(1) {
        return Err(format!("{duration} is too short; write at least 1ms"));
    }
    if duration.as_nanos() % 1_000_000 != 0 {
        return Err(format!("{duration} is not a whole number of milliseconds"));
    }
    Ok(())
}

/// Checks a duration, if set.
pub(super) fn optional_duration(verdict: &mut Verdict, at: &Path<'_>, value: Option<Duration>) {
    if let Some(value) = value {
        verdict.check(at, duration(value));
    }
}

/// A share in whole percent.
pub(super) fn percent(percent: i32) -> Result<(), String> {
    if (0..=100).contains(&percent) {
        return Ok(());
    }
    Err(format!("{percent} is not a percentage; write 0 to 100"))
}

/// Labels, as Kubernetes allows them.
pub(super) fn labels(verdict: &mut Verdict, at: &Path<'_>, labels: &BTreeMap<String, String>) {
    for (key, value) in labels {
        verdict.check(&at.field(key), label_key(key));
        if !value.is_empty() && !is_qualified_name(value) {
            verdict.error(
                &at.field(key),
                format!("{value:?} is not a label value; write letters, digits and inner \"-\", \"_\" and \".\""),
            );
        }
    }
}

/// A label key: a name, after an optional domain and a slash.
fn label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key
        .rsplit_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let good_prefix = prefix.is_none_or(|prefix| {
        prefix.len() <= KEY_PREFIX_LIMIT && prefix.split('.').all(is_label_of_any_length)
    });
    if good_prefix && name.len() <= LABEL_LIMIT && is_qualified_name(name) {
        return Ok(());
    }
    Err(format!(
        "{key:?} is not a label key; write letters, digits and inner \"-\", \"_\" and \".\", at most {LABEL_LIMIT}, \
         after an optional domain name and \"/\""
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_labels_with_an_optional_last_dot() {
        for good in [
            "example",
            "example.com",
            "example.com.",
            "1.example",
            "EXAMPLE.com",
            "*",
            "*.com",
            "*-a.com",
            "*a",
            "*.",
        ] {
            assert_eq!(wildcard_domain(good), Ok(()), "{good}");
        }

        for bad in [
            "", ".", ".com", "a..b", "-a.com", "a_b.com", "*.*.com", "a.1", "1.2.3.4", "a.*",
            "a-*.com", "a/b.com",
        ] {
            assert!(wildcard_domain(bad).is_err(), "{bad}");
        }

        assert_eq!(fqdn("example.com."), Ok(()));
        assert!(fqdn("*.com").is_err() && fqdn("1").is_err() && fqdn(".").is_err());
        assert!(fqdn(&"a".repeat(64)).is_err() && fqdn(&["a"; 129].join(".")).is_err());
    }

    #[test]
    fn generated_sni_has_port_and_host() {
        assert_eq!(sni_domain("outbound_.80_._.e2e.foobar.mesh"), Ok(()));
        assert_eq!(sni_domain("outbound_.80_.v1_.e2e.foobar.mesh"), Ok(()));
        assert!(sni_domain("outbound_.x_._.e2e").is_err());
        assert!(sni_domain("outbound_.80_.e2e").is_err());
        assert_eq!(sni_domain("*.example"), Ok(()));
    }

    #[test]
    fn cidr_blocks_have_a_plain_prefix_length() {
        for good in [
            "10.0.0.1",
            "10.0.0.0/8",
            "::/0",
            "2001:db8::1",
            "2001:db8::/128",
            "fe80::1%eth0",
        ] {
            assert_eq!(ip_or_cidr(good), Ok(()), "{good}");
        }

        for bad in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "a/8",
            "::/129",
            "1.2.3.4/1/2",
            "fe80::1%eth0/64",
        ] {
            assert!(ip_or_cidr(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_kubernetes_labels() {
        for good in ["app", "app.kubernetes.io/name", "a_b", "1"] {
            assert_eq!(label_key(good), Ok(()), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "-a", "a b", "a_b/c"] {
            assert!(label_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unix_paths_name_a_file() {
        assert!(unix_path("/run/a.sock").is_ok() && unix_path("@name").is_ok());
        assert!(
            unix_path("").is_err() && unix_path("a.sock").is_err() && unix_path("/run/").is_err()
        );
    }
}
