//! Domains that several virtual hosts of a port have: Envoy rejects a route configuration with a
//! duplicate domain.
//!
//! Virtual hosts that may share a domain for some proxy are computed once for all namespaces. Only
//! among these does the result depend on the proxy's namespace; all other virtual hosts are the
//! same for every proxy.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::context::RouteClient;
use super::domains::{self, Domain, PortForm};
use super::port_services::{self, OutboundPort};
use super::virtual_host_set::{PlannedVirtualHost, VirtualHostSet};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The domains that a virtual host wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DomainsOf {
    /// The port and listener.
    pub(super) at: OutboundPort,
    pub(super) virtual_host: PlannedVirtualHost,
}

impl Query for DomainsOf {
    type Value = Arc<[Domain]>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let port = self.virtual_host.port;
        let Some(reference) = &self.virtual_host.service else {
            let form = match self.at.client {
                RouteClient::Envoy | RouteClient::Waypoint => PortForm::Bare,
                RouteClient::Grpc => PortForm::WithPort(port),
            };
            return domains::of_host(self.virtual_host.host.as_str(), form).into();
        };

        let form = match (self.at.port, self.at.client) {
            (0, _) => PortForm::WithPort(port),
            (_, RouteClient::Grpc) => PortForm::OfListener(port),
            (_, RouteClient::Envoy | RouteClient::Waypoint) => PortForm::Bare,
        };
        let service = port_services::cut(view, self.at, reference);

        service.map_or_else(
            || Arc::from([]),
            |service| domains::of_service(view, &service, form).into(),
        )
    }
}

/// A connected component of virtual hosts with common domains, in order of precedence.
type ConflictingHosts = Arc<[ConflictingHost]>;

/// A virtual host of such a component.
#[derive(Debug, PartialEq)]
struct ConflictingHost {
    /// Name of the virtual host.
    name: String,
    /// The host of its service; `None` for a host of a VirtualService without a service.
    service_host: Option<String>,
    wanted: Arc<[Domain]>,
}

/// The rivals of each virtual host of a port that has rivals.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllConflictingHosts {
    /// The port and listener.
    at: OutboundPort,
}

/// The rivals of one virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ConflictingHostsOf {
    /// The port and listener.
    at: OutboundPort,
    name: String,
}

/// The domains, sorted, that a virtual host loses to others.
pub(super) fn lost_domains(view: &View<'_>, at: OutboundPort, name: &str) -> Vec<String> {
    match &*view.get(&ConflictingHostsOf {
        at,
        name: name.to_owned(),
    }) {
        None => Vec::new(),
        Some(rivals) => domains_lost_to(view, rivals, name),
    }
}

/// The domains, sorted, that each of these virtual hosts loses to others; those that lose none are
/// absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LostDomains {
    /// The port and listener.
    pub(super) at: OutboundPort,
    pub(super) names: Arc<[String]>,
}

impl Query for LostDomains {
    type Value = BTreeMap<String, Vec<String>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let all = view.get(&AllConflictingHosts { at: self.at });
        let rivals = self
            .names
            .iter()
            .filter_map(|name| Some((name, all.get(name)?)));
        let lost = rivals.map(|(name, rivals)| (name.clone(), domains_lost_to(view, rivals, name)));
        lost.filter(|(_, lost)| !lost.is_empty()).collect()
    }
}

impl Query for ConflictingHostsOf {
    type Value = Option<ConflictingHosts>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AllConflictingHosts { at: self.at })
            .get(&self.name)
            .cloned()
    }
}

impl Query for AllConflictingHosts {
    type Value = BTreeMap<String, ConflictingHosts>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let table = view.get(&VirtualHostSet { at: self.at });
        let wanted: Vec<Arc<Arc<[Domain]>>> = table
            .virtual_hosts
            .iter()
            .map(|virtual_host| {
                view.get(&DomainsOf {
                    at: self.at,
                    virtual_host: virtual_host.clone(),
                })
            })
            .collect();

        let mut groups = Union::new(wanted.len());
        let mut rivals: BTreeSet<usize> = BTreeSet::new();
        for (first, later) in domain_pairs(&wanted) {
            groups.join(first, later);
            rivals.extend([first, later]);
        }

        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for place in rivals {
            members.entry(groups.root(place)).or_default().push(place);
        }

        let rival = |place: &usize| {
            let virtual_host = table.virtual_hosts.get(*place)?;
            let wanted = wanted.get(*place)?;
            let service_host = virtual_host
                .service
                .is_some()
                .then(|| virtual_host.host.to_string());
            Some(ConflictingHost {
                name: virtual_host.name.clone(),
                service_host,
                wanted: Arc::clone(wanted),
            })
        };

        let components = members.into_values().map(|places| {
            places
                .iter()
                .filter_map(rival)
                .collect::<ConflictingHosts>()
        });

        let by_name = components.flat_map(|rivals| {
            let names: Vec<String> = rivals.iter().map(|rival| rival.name.clone()).collect();
            names
                .into_iter()
                .map(move |name| (name, Arc::clone(&rivals)))
        });

        by_name.collect()
    }
}

/// The pairs of indexes that want the same domain for some proxy; an index may be paired with
/// itself. Names that are local to different namespaces are never paired.
fn domain_pairs(wanted: &[Arc<Arc<[Domain]>>]) -> Vec<(usize, usize)> {
    /// The first virtual host that wants a text.
    #[derive(Default)]
    struct FirstUses {
        /// For proxies of all namespaces.
        by_all: Option<usize>,
        /// For proxies of one namespace.
        by_namespace: BTreeMap<Arc<str>, usize>,
    }

    let mut first_uses: HashMap<String, FirstUses> = HashMap::new();
    let mut found = Vec::new();

    for (place, domain) in wanted
        .iter()
        .enumerate()
        .flat_map(|(place, all)| all.iter().map(move |one| (place, one)))
    {
        let known = first_uses
            .entry(domain.text.to_ascii_lowercase())
            .or_default();
        found.extend(known.by_all.map(|first| (first, place)));
        match &domain.local_to {
            Some(namespace) => {
                found.extend(
                    known
                        .by_namespace
                        .get(namespace)
                        .map(|first| (*first, place)),
                );
                known
                    .by_namespace
                    .entry(Arc::clone(namespace))
                    .or_insert(place);
            }
            None => {
                found.extend(known.by_namespace.values().map(|first| (*first, place)));
                known.by_all.get_or_insert(place);
            }
        }
    }

    found
}

/// The domains that one of the rivals loses for the view's proxy: those of an earlier one, and
/// derived names that are the own name of another.
fn domains_lost_to(view: &View<'_>, rivals: &[ConflictingHost], name: &str) -> Vec<String> {
    let hosts = rivals
        .iter()
        .filter_map(|rival| Some((rival.service_host.as_deref()?, rival.name.as_str())));
    let own_names: BTreeSet<&str> = hosts.flat_map(|(host, name)| [host, name]).collect();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut lost: Vec<String> = Vec::new();

    for rival in rivals {
        for domain in rival.wanted.iter().filter(|domain| domain.is_known(view)) {
            // A derived name such as `foo.com`, from `foo.com.cluster.local`, must not replace the
            // real one.
            let is_anothers = domain.is_derived && own_names.contains(domain.text.as_str());
            let is_lost = is_anothers || !taken.insert(domain.text.to_ascii_lowercase());
            if is_lost && rival.name == name {
                lost.push(domain.text.clone());
            }
        }
    }

    lost.sort_unstable();
    lost.dedup();
    if !lost.is_empty() {
        view.count("pilot_vservice_dup_domain", name);
    }

    lost
}

/// Disjoint sets of indexes.
struct Union {
    /// For each index, another index of its set; roots refer to themselves.
    parents: Vec<usize>,
}

impl Union {
    /// Sets of one index each.
    fn new(places: usize) -> Self {
        Self {
            parents: (0..places).collect(),
        }
    }

    /// The root of an index's set.
    fn root(&self, place: usize) -> usize {
        let mut root = place;
        while let Some(parent) = self
            .parents
            .get(root)
            .copied()
            .filter(|parent| *parent != root)
        {
            root = parent;
        }
        root
    }

    /// Joins two sets; the root is the lowest index.
    fn join(&mut self, a: usize, b: usize) {
        let a = self.root(a);
        let b = self.root(b);
        if let Some(parent) = self.parents.get_mut(a.max(b)) {
            *parent = a.min(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(text: &str, local_to: Option<&str>) -> Domain {
        Domain {
            text: text.to_owned(),
            is_derived: true,
            local_to: local_to.map(Arc::from),
        }
    }

    fn wanted(lists: &[&[Domain]]) -> Vec<Arc<Arc<[Domain]>>> {
        lists
            .iter()
            .map(|list| Arc::new(Arc::from(*list)))
            .collect()
    }

    #[test]
    fn bare_names_of_different_namespaces_do_not_conflict() {
        let shop = [domain("web", Some("shop"))];
        let bank = [domain("web", Some("bank"))];
        assert_eq!(domain_pairs(&wanted(&[&shop, &bank])), []);
        let all = [domain("Web", None)];
        assert_eq!(
            domain_pairs(&wanted(&[&shop, &bank, &all])),
            [(1, 2), (0, 2)]
        );
        assert_eq!(domain_pairs(&wanted(&[&all, &shop])), [(0, 1)]);
    }

    #[test]
    fn a_host_that_repeats_a_domain_pairs_with_itself() {
        assert_eq!(
            domain_pairs(&wanted(&[&[
                domain("10.0.0.1", None),
                domain("10.0.0.1", None)
            ]])),
            [(0, 0)]
        );
    }

    #[test]
    fn sets_are_joined_transitively() {
        let mut union = Union::new(4);
        union.join(2, 3);
        union.join(1, 3);
        assert_eq!([0, 1, 2, 3].map(|place| union.root(place)), [0, 1, 1, 1]);
    }
}
