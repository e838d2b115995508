//! Domains that several virtual hosts of a port ask for: Envoy refuses a configuration in which one stands twice.

use std::collections::{BTreeMap, HashSet};

use super::claims::{Claims, wanted_domains};
use super::domains::with_port;
use super::port_services::OutboundPort;
use crate::push::query::Query;
use crate::push::view::View;

/// The domains that virtual hosts of a port have to leave to others. Few do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Collisions {
    /// Where they stand.
    pub(super) at: OutboundPort,
}

impl Query for Collisions {
    /// By name of the virtual host: the domains that it may not have, sorted.
    type Value = BTreeMap<String, Vec<String>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let claims = view.get(&Claims { at: self.at });
        let known: HashSet<&str> = claims
            .iter()
            .filter(|claim| claim.service.is_some())
            .flat_map(|claim| [claim.name.as_str(), claim.host.as_str()])
            .collect();
        let mut taken: HashSet<String> = HashSet::new();
        let mut lost: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for claim in claims.iter() {
            let wanted = wanted_domains(view, self.at, claim);
            for domain in &wanted.all {
                // A derived name such as `foo.com`, from `foo.com.cluster.local`, must not take the place of the real one.
                let is_anothers = wanted.derived.contains(domain) && known.contains(domain.as_str());
                if is_anothers || !taken.insert(domain.to_ascii_lowercase()) {
                    lost.entry(claim.name.clone()).or_default().push(domain.clone());
                }
            }
        }
        lost.values_mut().for_each(|domains| {
            domains.sort_unstable();
            domains.dedup();
        });
        lost
    }
}

/// The name of the virtual host of a host and port.
pub(super) fn host_name(host: &str, port: u16) -> String {
    with_port(host, port)
}
