//! A set of hosts that finds hosts which overlap with another one: checking a list costs no more
//! than its length.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::hostname::is_wildcard;

/// Hosts by the names that they cover; see [`crate::hostname`].
#[derive(Debug, Default)]
pub(super) struct HostSet<'a> {
    /// Exact names, and wildcards as they are written.
    written: BTreeMap<&'a str, usize>,
    /// The suffixes of wildcards.
    suffixes: BTreeMap<&'a str, usize>,
    /// All hosts without `*`, reversed, so that hosts with equal ends are adjacent.
    backwards: BTreeMap<Vec<u8>, usize>,
}

/// A host without its leading `*`.
fn body(host: &str) -> &str {
    host.strip_prefix('*').unwrap_or(host)
}

/// A text in reverse order.
fn backwards(text: &str) -> Vec<u8> {
    text.bytes().rev().collect()
}

impl<'a> HostSet<'a> {
    /// All hosts of a list.
    pub(super) fn of(hosts: &'a [String]) -> Self {
        let mut set = Self::default();
        for (index, host) in hosts.iter().enumerate() {
            set.put(index, host);
        }
        set
    }

    /// Inserts a host; of equal hosts, the first stays.
    pub(super) fn put(&mut self, index: usize, host: &'a str) {
        self.written.entry(host).or_insert(index);
        if is_wildcard(host) {
            self.suffixes.entry(body(host)).or_insert(index);
        }
        self.backwards.entry(backwards(body(host))).or_insert(index);
    }

    /// The index of a host that covers every name of `host`.
    pub(super) fn covering(&self, host: &str) -> Option<usize> {
        if let Some(same) = self.written.get(host) {
            return Some(*same);
        }
        let inner = body(host);
        let starts = inner.char_indices().map(|(at, _)| at).chain([inner.len()]);
        starts
            .filter_map(|at| inner.get(at..))
            .find_map(|suffix| self.suffixes.get(suffix).copied())
    }

    /// The index of a host that overlaps with `host`.
    pub(super) fn overlapping(&self, host: &str) -> Option<usize> {
        self.covering(host).or_else(|| {
            let suffix = host.strip_prefix('*').map(backwards)?;
            let (found, index) = self
                .backwards
                .range((Bound::Included(suffix.clone()), Bound::Unbounded))
                .next()?;
            found.starts_with(&suffix).then_some(*index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostname::{is_subset_of, matches};

    #[test]
    fn host_set_lookups_equal_a_linear_search() {
        let hosts = [
            "a", "a.com", "*.com", "*a.com", "b.a.com", "*", "*.a.com", "x.org", "é.com", "*é.com",
            "com", "*com",
        ];
        let all: Vec<String> = hosts.map(str::to_owned).to_vec();

        for mask in 0..1_usize << 6 {
            for from in [0, 6] {
                let some: Vec<String> = all
                    .iter()
                    .skip(from)
                    .take(6)
                    .enumerate()
                    .filter(|(at, _)| mask >> at & 1 == 1)
                    .map(|(_, host)| host.clone())
                    .collect();

                let set = HostSet::of(&some);

                for host in hosts {
                    assert_eq!(
                        set.covering(host).is_some(),
                        some.iter().any(|one| is_subset_of(host, one)),
                        "{host} {some:?}"
                    );
                    assert_eq!(
                        set.overlapping(host).is_some(),
                        some.iter().any(|one| matches(one, host)),
                        "{host} {some:?}"
                    );
                }
            }
        }
    }
}
