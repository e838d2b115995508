//! How hosts cover each other, which is more specific, and what a short name stands for.
//!
//! The rules are those of Istio's `pkg/config/host`: a wildcard is a leading `*`, and covers whatever ends in the rest.
//! Case counts.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::{IpAddr, Ipv6Addr};

use super::names::Hostname;

/// Whether the host starts with `*`.
#[must_use]
pub fn is_wildcard(host: &str) -> bool {
    host.starts_with('*')
}

/// Whether the host is an IP address; an IPv6 address may name its zone.
#[must_use]
pub fn is_ip_address(host: &str) -> bool {
    match host.split_once('%') {
        None => host.parse::<IpAddr>().is_ok(),
        Some((address, zone)) => !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok(),
    }
}

/// What a wildcard stands before; `None` when the host is no wildcard.
fn wildcard_suffix(host: &str) -> Option<&str> {
    host.strip_prefix('*')
}

/// Whether some name is meant by both: they are equal, or one covers the other.
#[must_use]
pub fn matches(a: &str, b: &str) -> bool {
    is_subset_of(a, b) || is_subset_of(b, a)
}

/// Whether `outer` covers every name that `inner` means.
#[must_use]
pub fn is_subset_of(inner: &str, outer: &str) -> bool {
    match (wildcard_suffix(inner), wildcard_suffix(outer)) {
        (Some(inner), Some(outer)) => inner.ends_with(outer),
        (None, Some(outer)) => inner.ends_with(outer),
        (Some(_), None) => false,
        (None, None) => inner == outer,
    }
}

/// Orders hosts as configuration lists them: exact names before wildcards, then longest first, then by letter.
#[must_use]
pub fn compare_specificity(a: &str, b: &str) -> Ordering {
    is_wildcard(a).cmp(&is_wildcard(b)).then_with(|| b.len().cmp(&a.len())).then_with(|| a.cmp(b))
}

/// The names of one list that are covered by the other, in the order found and each once.
#[must_use]
pub fn intersection<'a>(left: &[&'a str], right: &[&'a str]) -> Vec<&'a str> {
    let mut common: Vec<&'a str> = Vec::with_capacity(left.len());
    for &ours in left {
        for &theirs in right {
            let found = if is_subset_of(ours, theirs) {
                ours
            } else if is_subset_of(theirs, ours) {
                theirs
            } else {
                continue;
            };
            if !common.contains(&found) {
                common.push(found);
            }
        }
    }
    common
}

/// The full name of a host that a user wrote.
///
/// A name without a dot is a Kubernetes service of the object's namespace; `*`, IP addresses and names with a dot
/// stand for themselves. An empty namespace or domain suffix is left out.
#[must_use]
pub fn resolve_short_name<'a>(host: &'a str, namespace: &str, domain_suffix: &str) -> Cow<'a, str> {
    if host.is_empty() || host == "*" || host.contains('.') || is_ip_address(host) {
        return Cow::Borrowed(host);
    }
    let mut full = host.to_owned();
    if !namespace.is_empty() {
        full.push('.');
        full.push_str(namespace);
    }
    if !domain_suffix.is_empty() {
        full.push_str(".svc.");
        full.push_str(domain_suffix);
    }
    Cow::Owned(full)
}

impl Hostname {
    /// Whether some name is meant by both: they are equal, or one covers the other.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        matches(self.as_str(), other.as_str())
    }

    /// Whether `outer` covers every name that this host means.
    #[must_use]
    pub fn subset_of(&self, outer: &Self) -> bool {
        is_subset_of(self.as_str(), outer.as_str())
    }

    /// Orders by how specific the hosts are, the most specific first; see [`compare_specificity`].
    #[must_use]
    pub fn more_specific(&self, other: &Self) -> Ordering {
        compare_specificity(self.as_str(), other.as_str())
    }

    /// The full name of a host that a user wrote; see [`resolve_short_name`].
    #[must_use]
    pub fn resolve(host: &str, namespace: &str, domain_suffix: &str) -> Self {
        Self::new(resolve_short_name(host, namespace, domain_suffix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_match_when_one_covers_the_other() {
        for (a, b, expected) in [
            ("shop.example", "shop.example", true),
            ("shop.example", "bank.example", false),
            ("shop.example", "Shop.example", false),
            ("*.example", "shop.example", true),
            ("*.shop.example", "shop.example", false),
            ("*", "shop.example", true),
            ("*", "*.example", true),
            ("*.shop.example", "*.example", true),
            ("*.shop.example", "*.bank.example", false),
            ("*shop.example", "webshop.example", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(a, b), expected, "{a} {b}");
            assert_eq!(matches(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn subset_is_one_direction_of_matching() {
        for (inner, outer, expected) in [
            ("shop.example", "*.example", true),
            ("*.example", "shop.example", false),
            ("*.shop.example", "*.example", true),
            ("*.example", "*.shop.example", false),
            ("*.example", "*.example", true),
            ("shop.example", "*", true),
            ("*", "*", true),
        ] {
            assert_eq!(is_subset_of(inner, outer), expected, "{inner} {outer}");
        }
    }

    #[test]
    fn exact_before_wildcard_then_longest_then_by_letter() {
        let mut hosts = ["b.example", "*", "a.example", "*.example", "web.a.example", "*.a.example"];
        hosts.sort_by(|a, b| compare_specificity(a, b));
        assert_eq!(hosts, ["web.a.example", "a.example", "b.example", "*.a.example", "*.example", "*"]);
    }

    #[test]
    fn the_intersection_keeps_the_narrower_names() {
        assert_eq!(intersection(&["shop.example", "*.net"], &["*.example", "bar.net"]), ["shop.example", "bar.net"]);
        assert_eq!(intersection(&["*.example"], &["shop.example", "bank.example"]), ["shop.example", "bank.example"]);
        assert_eq!(intersection(&["*", "shop.example"], &["shop.example"]), ["shop.example"]);
        assert_eq!(intersection(&["shop.example"], &["bank.example"]), Vec::<&str>::new());
        assert_eq!(intersection(&[], &["bank.example"]), Vec::<&str>::new());
    }

    #[test]
    fn only_a_name_without_dots_is_completed() {
        assert_eq!(resolve_short_name("reviews", "shop", "cluster.local"), "reviews.shop.svc.cluster.local");
        assert_eq!(resolve_short_name("reviews", "", "cluster.local"), "reviews.svc.cluster.local");
        assert_eq!(resolve_short_name("reviews", "shop", ""), "reviews.shop");
        for host in ["", "*", "*.example", "reviews.shop", "10.0.0.1", "2001:db8::1"] {
            assert_eq!(resolve_short_name(host, "shop", "cluster.local"), host);
        }
    }
}
