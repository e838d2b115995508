//! The clusters of the services that a proxy sees, divided by whether they may be lazy.
//!
//! Proxies with the same services share the division: what a workload has used only selects from it.
//! With it, a change of services costs each further workload as much as it has used, and not as much
//! as the mesh has.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::clusters;
use crate::names::ClusterName;
use navarch_api::names::{Hostname, ResourceName};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The division for the view's proxy, before patches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClustersOfServices;

/// Names of clusters of services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DividedClusters {
    /// Those that are never lazy, whoever the proxy is.
    pub(super) fixed: Vec<ResourceName>,
    /// Those that are lazy unless more than routes names them, or their host was used.
    pub(super) others: BTreeMap<Hostname, Vec<ResourceName>>,
}

impl Query for ClustersOfServices {
    type Value = DividedClusters;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut divided = DividedClusters::default();
        for name in clusters::names_of_services(view) {
            let host = match ClusterName::parse(name.as_str()) {
                Some(ClusterName::Outbound(cluster)) => Some(cluster.host),
                Some(_) | None => None,
            };
            match host.filter(|host| may_be_lazy(view, host)) {
                Some(host) => divided.others.entry(host).or_default().push(name),
                None => divided.fixed.push(name),
            }
        }
        divided
    }
}

impl DividedClusters {
    /// The clusters of a host that may be lazy.
    pub(super) fn of_host(&self, host: &Hostname) -> &[ResourceName] {
        self.others.get(host).map_or(&[], Vec::as_slice)
    }

    /// The clusters that may be lazy with whose names a text begins: of each host with which the
    /// text goes on after port and subset.
    pub(super) fn begun_by(&self, text: &str) -> Vec<&ResourceName> {
        let mut begun = Vec::new();
        let host = text.match_indices('|').nth(2);
        let Some(mut rest) = host.and_then(|(at, _)| text.get(at + 1..)) else {
            return begun;
        };

        // Texts with which `rest` begins are in order before it, the longest one last.
        loop {
            let up_to_rest = (Bound::Unbounded, Bound::Included(rest));
            let Some((host, names)) = self.others.range::<str, _>(up_to_rest).next_back() else {
                return begun;
            };
            let common = common_length(host.as_str(), rest);
            let is_whole = common == host.as_str().len();
            if is_whole {
                begun.extend(names.iter().filter(|name| text.starts_with(name.as_str())));
            }

            // Any further one is shorter.
            let shorter = common.checked_sub(usize::from(is_whole));
            let Some(shorter) = shorter.and_then(|length| rest.get(..length)) else {
                return begun;
            };
            rest = shorter;
        }
    }
}

/// Whether a cluster of a host can be lazy, as far as that depends on the host alone.
pub(super) fn may_be_lazy(view: &View<'_>, host: &Hostname) -> bool {
    !host.is_wildcard() && !clusters::waits_for_others(view, host)
}

/// The number of bytes with which both texts begin.
fn common_length(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(names: &[&str]) -> DividedClusters {
        let mut divided = DividedClusters::default();
        for name in names {
            let host = name.rsplit('|').next().expect("a text has a last part");
            let of_host = divided.others.entry(Hostname::new(host)).or_default();
            of_host.push(ResourceName::new(*name));
        }
        divided
    }

    #[test]
    fn the_clusters_with_which_a_text_begins_are_found() {
        let names = [
            "outbound|80||a",
            "outbound|80||a.example",
            "outbound|80|v1|a.example",
            "outbound|81||a.example",
            "outbound|80||a.example.com",
            "outbound|80||a.exampla",
            "outbound|80||b.example",
        ];
        let divided = divided(&names);

        for text in [
            "outbound|80||a.example",
            "outbound|80||a.example.coma2",
            "outbound|80||a.example.",
            "outbound|80||a.examplz",
            "outbound|80|v1|a.example0",
            "outbound|81||a.example",
            "outbound|80||b",
            "outbound|80||",
            "outbound|80|",
            "outbound|80||zz|x",
            "",
        ] {
            let mut found: Vec<&str> = divided
                .begun_by(text)
                .into_iter()
                .map(ResourceName::as_str)
                .collect();
            found.sort_unstable();

            let mut expected = names.to_vec();
            expected.retain(|name| text.starts_with(name));
            expected.sort_unstable();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
