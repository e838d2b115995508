//! Limits on the served part of a ServiceEntry. The generated configuration grows with the product
//! of its lists: an object of 1.5 MB, which an API server accepts, could generate billions of
//! endpoints.

use super::Verdict;
use super::path::Path;
use crate::istio::ServiceEntry;

/// The maximum of hosts times addresses times ports: each is a cluster and a virtual host or filter
/// chain.
const MAX_SERVICE_PORTS: usize = 200_000;
/// The maximum of endpoints times ports.
const MAX_ENDPOINT_PORTS: usize = 200_000;
/// The maximum of hosts times endpoints times ports: each is an entry of a load assignment.
const MAX_HOST_ENDPOINTS: usize = 2_000_000;

/// How many elements of a ServiceEntry's lists are served, from the start of each list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedLists {
    /// Of `spec.hosts`.
    pub hosts: usize,
    /// Of `spec.addresses`.
    pub addresses: usize,
    /// Of the endpoints, or of the selected workloads.
    pub endpoints: usize,
}

impl ServedLists {
    /// For an entry with this number of endpoints or selected workloads.
    #[must_use]
    pub fn of(entry: &ServiceEntry, endpoints: usize) -> Self {
        let ports = entry.ports.len().max(1);
        let addresses = entry
            .addresses
            .len()
            .min((MAX_SERVICE_PORTS / ports).max(1));
        let hosts = entry
            .hosts
            .len()
            .min((MAX_SERVICE_PORTS / (ports * addresses.max(1))).max(1));
        let by_all = MAX_HOST_ENDPOINTS / (ports * hosts.max(1));
        let endpoints = endpoints.min((MAX_ENDPOINT_PORTS / ports).min(by_all).max(1));
        Self {
            hosts,
            addresses,
            endpoints,
        }
    }
}

/// Warns of elements that are not served.
pub(super) fn warn_of_cuts(verdict: &mut Verdict, spec: &Path<'_>, entry: &ServiceEntry) {
    let served = ServedLists::of(entry, entry.endpoints.len());
    let ports = entry.ports.len();
    let mut warn = |field: &str, length: usize, served: usize, most: usize| {
        if served < length {
            let message = format!(
                "has {length} elements, of which only the first {served} are served: with {ports} ports there would be more \
                 than {most} in all; write several ServiceEntries"
            );
            verdict.warn(&spec.field(field), message);
        }
    };

    warn(
        "addresses",
        entry.addresses.len(),
        served.addresses,
        MAX_SERVICE_PORTS,
    );

    warn("hosts", entry.hosts.len(), served.hosts, MAX_SERVICE_PORTS);
    let most = if served.endpoints * ports >= MAX_ENDPOINT_PORTS {
        MAX_ENDPOINT_PORTS
    } else {
        MAX_HOST_ENDPOINTS
    };

    warn("endpoints", entry.endpoints.len(), served.endpoints, most);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::istio::{ServicePort, WorkloadEntry};
    use crate::object::ObjectMeta;
    use crate::validation::Validate;

    /// An entry with lists of these lengths.
    fn entry(hosts: usize, addresses: usize, ports: usize, endpoints: usize) -> ServiceEntry {
        ServiceEntry {
            hosts: (0..hosts).map(|n| format!("h{n}.example")).collect(),
            addresses: (0..addresses)
                .map(|n| format!("10.0.{}.{}", n / 250, n % 250))
                .collect(),
            ports: (0..ports).map(|_| ServicePort::default()).collect(),
            endpoints: (0..endpoints).map(|_| WorkloadEntry::default()).collect(),
            ..ServiceEntry::default()
        }
    }

    #[test]
    fn products_of_counts_are_bounded_without_truncating_normal_entries() {
        for (hosts, addresses, ports, endpoints) in [
            (40_000, 0, 2, 3),
            (1, 5_000, 10, 1),
            (100, 1, 10, 1_000),
            (1, 0, 1, 100_000),
            (0, 0, 0, 0),
        ] {
            let entry = entry(hosts, addresses, ports, endpoints);
            assert_eq!(
                ServedLists::of(&entry, endpoints),
                ServedLists {
                    hosts,
                    addresses,
                    endpoints
                }
            );
        }

        for (hosts, addresses, ports, endpoints) in [
            (50_000, 0, 18_000, 0),
            (20_000, 20_000, 1_000, 20_000),
            (30_000, 0, 1, 20_000),
            (1, 0, 20_000, 20_000),
        ] {
            let served = ServedLists::of(&entry(hosts, addresses, ports, endpoints), endpoints);
            assert!(
                served.hosts > 0 && (addresses == 0 || served.addresses > 0),
                "{served:?}"
            );
            assert!(
                served.hosts * served.addresses.max(1) * ports <= MAX_SERVICE_PORTS,
                "{served:?}"
            );
            assert!(served.endpoints * ports <= MAX_ENDPOINT_PORTS, "{served:?}");
            assert!(
                served.hosts * served.endpoints * ports <= MAX_HOST_ENDPOINTS,
                "{served:?}"
            );
        }
    }

    #[test]
    fn truncations_are_reported_by_field() {
        let warned = |entry: &ServiceEntry| {
            let verdict = entry.validate(&ObjectMeta::default());
            let cuts = verdict
                .warnings
                .iter()
                .filter(|warning| warning.message.contains("are served"));
            cuts.map(|warning| warning.field.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(warned(&entry(10, 10, 10, 10)), Vec::<String>::new());
        assert_eq!(warned(&entry(3_000, 0, 100, 1)), ["spec.hosts"]);
        assert_eq!(warned(&entry(1, 0, 300, 1_000)), ["spec.endpoints"]);
    }
}
