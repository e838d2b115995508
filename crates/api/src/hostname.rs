//! Matching of hosts, their specificity, and resolution of short names.
//!
//! The rules are those of Istio's `pkg/config/host`: a wildcard is a leading `*`, and covers
//! whatever ends in the rest. Matching is case-sensitive.

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

/// The suffix of a wildcard; `None` if the host is not a wildcard.
fn wildcard_suffix(host: &str) -> Option<&str> {
    host.strip_prefix('*')
}

/// Whether two hosts overlap: they are equal, or one covers the other.
#[must_use]
pub fn matches(a: &str, b: &str) -> bool {
    is_subset_of(a, b) || is_subset_of(b, a)
}

/// Whether `outer` covers every name of `inner`.
#[must_use]
pub fn is_subset_of(inner: &str, outer: &str) -> bool {
    match (wildcard_suffix(inner), wildcard_suffix(outer)) {
        (Some(inner), Some(outer)) => inner.ends_with(outer),
        (None, Some(outer)) => inner.ends_with(outer),
        (Some(_), None) => false,
        (None, None) => inner == outer,
    }
}

/// Orders hosts as configuration lists them: exact names before wildcards, then longest first, then
/// by letter.
#[must_use]
pub fn compare_specificity(a: &str, b: &str) -> Ordering {
    is_wildcard(a)
        .cmp(&is_wildcard(b))
        .then_with(|| b.len().cmp(&a.len()))
        .then_with(|| a.cmp(b))
}

/// A list of hosts that finds the hosts overlapping a given host without a scan of the whole list.
#[derive(Clone, Debug)]
pub struct HostIndex<'a, T> {
    /// The suffixes after the `*` of wildcards, and exact names, each reversed, with the host
    /// itself and its value.
    sorted: Vec<(Vec<u8>, &'a str, T)>,
    /// The lengths of the wildcards' suffixes, shortest first.
    wildcards: Vec<usize>,
}

impl<'a, T: Copy + Ord> HostIndex<'a, T> {
    /// An index of hosts, each with a value.
    pub fn new(hosts: impl Iterator<Item = (&'a str, T)>) -> Self {
        let mut sorted: Vec<_> = hosts
            .map(|(host, of)| (backwards(host), host, of))
            .collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut wildcards: Vec<usize> = sorted
            .iter()
            .filter_map(|(_, host, _)| Some(wildcard_suffix(host)?.len()))
            .collect();
        wildcards.sort_unstable();
        wildcards.dedup();
        Self { sorted, wildcards }
    }

    /// Whether any host of the list [`matches()`] this one.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        let key = backwards(host);
        let covers = |length: &usize| {
            let Some(suffix) = key.get(..*length) else {
                return false;
            };
            let from = self
                .sorted
                .partition_point(|(own, _, _)| own.as_slice() < suffix);
            let mut same = self
                .sorted
                .iter()
                .skip(from)
                .take_while(|(own, _, _)| own == suffix);
            same.any(|(_, own, _)| is_subset_of(host, own))
        };

        let from = self.sorted.partition_point(|(own, _, _)| *own < key);
        let mut under = self
            .sorted
            .iter()
            .skip(from)
            .take_while(|(own, _, _)| own.starts_with(&key));

        // An exact name does not match longer names: only equal entries, which come first, are
        // compared.
        let is_met = match is_wildcard(host) {
            true => under.next().is_some(),
            false => under
                .take_while(|(own, _, _)| *own == key)
                .any(|(_, own, _)| matches(host, own)),
        };

        is_met || self.wildcards.iter().any(covers)
    }

    /// The narrower of `host` and each host of the list that [`matches()`] it, with the value of
    /// the list's host.
    pub fn common<'b>(&self, host: &'b str) -> Vec<(&'b str, T)>
    where
        'a: 'b,
    {
        let key = backwards(host);
        let mut found: Vec<(&'b str, T)> = Vec::new();

        // Wildcards that cover `host`: their suffix is a suffix of `host`.
        for length in self
            .wildcards
            .iter()
            .take_while(|length| **length <= key.len())
        {
            let Some(suffix) = key.get(..*length) else {
                continue;
            };
            let from = self
                .sorted
                .partition_point(|(own, _, _)| own.as_slice() < suffix);
            let same = self
                .sorted
                .iter()
                .skip(from)
                .take_while(|(own, _, _)| own == suffix);
            found.extend(
                same.filter(|(_, own, _)| is_subset_of(host, own))
                    .map(|(_, _, of)| (host, *of)),
            );
        }

        // Hosts that `host` covers or equals; an exact name covers only itself.
        let from = self.sorted.partition_point(|(own, _, _)| *own < key);
        let under = self.sorted.iter().skip(from);
        let under = under.take_while(|(own, _, _)| {
            if is_wildcard(host) {
                own.starts_with(&key)
            } else {
                *own == key
            }
        });

        let under = under.filter(|(_, own, _)| {
            is_subset_of(own, host) && !is_subset_of(host, own) || *own == host
        });
        found.extend(under.map(|(_, own, of)| (*own, *of)));
        found.sort_unstable();
        found.dedup();

        found
    }
}

/// The bytes of an exact name, or of a wildcard's suffix, in reverse order.
fn backwards(host: &str) -> Vec<u8> {
    wildcard_suffix(host)
        .unwrap_or(host)
        .bytes()
        .rev()
        .collect()
}

/// The full name of a host that a user wrote.
///
/// A name without a dot is a Kubernetes service of the object's namespace; `*`, IP addresses and
/// names with a dot stay unchanged. An empty namespace or domain suffix is omitted.
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
    /// Whether two hosts overlap: they are equal, or one covers the other.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        matches(self.as_str(), other.as_str())
    }

    /// Whether `outer` covers every name that this host covers.
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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

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
        let mut hosts = [
            "b.example",
            "*",
            "a.example",
            "*.example",
            "web.a.example",
            "*.a.example",
        ];

        hosts.sort_by(|a, b| compare_specificity(a, b));
        assert_eq!(
            hosts,
            [
                "web.a.example",
                "a.example",
                "b.example",
                "*.a.example",
                "*.example",
                "*"
            ]
        );
    }

    #[test]
    fn an_index_gives_the_narrower_names() {
        let index = HostIndex::new(
            [
                ("*.example", 0),
                ("bar.net", 1),
                ("*", 2),
                ("a.shop.example", 3),
            ]
            .into_iter(),
        );

        assert_eq!(
            index.common("shop.example"),
            [("shop.example", 0), ("shop.example", 2)]
        );
        assert_eq!(index.common("*.net"), [("*.net", 2), ("bar.net", 1)]);
        assert_eq!(
            index.common("*.shop.example"),
            [
                ("*.shop.example", 0),
                ("*.shop.example", 2),
                ("a.shop.example", 3)
            ]
        );

        let index = HostIndex::new([("bank.example", 0)].into_iter());
        assert_eq!(
            (index.common("shop.example"), index.common("")),
            (vec![], vec![])
        );
    }

    proptest! {
        #[test]
        fn host_index_lookups_equal_a_linear_search(
            left in prop::collection::vec(r"\*?(\.?[ab]){0,3}", 0..8),
            right in prop::collection::vec(r"\*?(\.?[ab]){0,3}", 0..8),
        ) {
            let mut expected: BTreeSet<(&str, usize)> = BTreeSet::new();
            let mut found: BTreeSet<(&str, usize)> = BTreeSet::new();
            let numbered = right.iter().enumerate();
            let index = HostIndex::new(numbered.map(|(at, host)| (host.as_str(), at)));
            for ours in &left {
                let matching = right.iter().enumerate().filter(|(_, theirs)| matches(ours, theirs));
                for (at, theirs) in matching {
                    expected.insert((if is_subset_of(ours, theirs) { ours } else { theirs }, at));
                }
                found.extend(index.common(ours));
                let is_matched = right.iter().any(|theirs| matches(ours, theirs));
                prop_assert_eq!(index.matches(ours), is_matched);
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn only_a_name_without_dots_is_completed() {
        assert_eq!(
            resolve_short_name("reviews", "shop", "cluster.local"),
            "reviews.shop.svc.cluster.local"
        );
        assert_eq!(
            resolve_short_name("reviews", "", "cluster.local"),
            "reviews.svc.cluster.local"
        );

        assert_eq!(resolve_short_name("reviews", "shop", ""), "reviews.shop");

        for host in [
            "",
            "*",
            "*.example",
            "reviews.shop",
            "10.0.0.1",
            "2001:db8::1",
        ] {
            assert_eq!(resolve_short_name(host, "shop", "cluster.local"), host);
        }
    }
}
