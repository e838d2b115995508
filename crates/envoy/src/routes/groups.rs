//! Virtual hosts in groups, so that an edit affects one group instead of thousands of hosts.
//!
//! A group contains hosts of one namespace: all proxies of other namespaces share its bytes, since
//! bare service names only differ in their own namespace. Large namespaces are divided by a hash of
//! the name, which is stable when others are added or removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::duplicate_domains::LostDomains;
use super::port_services::OutboundPort;
use super::virtual_host::{DomainChoice, VirtualHostBytes};
use super::virtual_host_set::{PlannedVirtualHost, VirtualHostSet};
use navarch_api::names::Namespace;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Approximate number of hosts in a group: an edit rechecks the hosts of one group, and all groups
/// of the configuration.
const MEAN_GROUP_SIZE: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct GroupId {
    /// The namespace of its services, or of the VirtualServices for hosts without a service.
    namespace: Namespace,
    /// The part of the namespace.
    part: u32,
}

/// All groups of a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Groups {
    /// The port and listener.
    at: OutboundPort,
}

/// The virtual hosts of one group, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    /// The port and listener.
    at: OutboundPort,
    id: GroupId,
}

/// The virtual hosts of one group, encoded, ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupHosts {
    at: OutboundPort,
    id: GroupId,
}

/// The value of [`Groups`].
#[derive(Debug, Default, PartialEq, Eq)]
struct GroupTable {
    groups: BTreeMap<GroupId, Arc<[PlannedVirtualHost]>>,
    /// All virtual hosts ordered by name: the index of the group, and the index within the group.
    order: Vec<(usize, usize)>,
}

/// The virtual hosts of a port, encoded, ordered by name as in istiod (`util.SortVirtualHosts`).
/// The names are sorted when virtual hosts are added or removed, not when one of them changes.
pub(super) fn sorted_hosts(view: &View<'_>, at: OutboundPort) -> Vec<Bytes> {
    let table = view.get(&Groups { at });
    let groups: Vec<Arc<Vec<Bytes>>> = table
        .groups
        .keys()
        .map(|id| view.get(&GroupHosts { at, id: id.clone() }))
        .collect();
    table
        .order
        .iter()
        .filter_map(|(group, host)| groups.get(*group)?.get(*host))
        .cloned()
        .collect()
}

impl Query for Groups {
    type Value = GroupTable;

    fn compute(&self, view: &View<'_>) -> GroupTable {
        let table = view.get(&VirtualHostSet { at: self.at });
        let mut by_namespace: BTreeMap<Namespace, Vec<&PlannedVirtualHost>> = BTreeMap::new();

        for virtual_host in &table.virtual_hosts {
            by_namespace
                .entry(namespace_of(virtual_host))
                .or_default()
                .push(virtual_host);
        }

        let mut groups: BTreeMap<GroupId, Vec<PlannedVirtualHost>> = BTreeMap::new();

        for (namespace, virtual_hosts) in by_namespace {
            // A power of two, so that growth splits groups into halves and ids stay stable.
            let parts = u32::try_from(
                virtual_hosts
                    .len()
                    .div_ceil(MEAN_GROUP_SIZE)
                    .next_power_of_two(),
            )
            .unwrap_or(u32::MAX);

            for virtual_host in virtual_hosts {
                let id = GroupId {
                    namespace: namespace.clone(),
                    part: hash(&virtual_host.name) % parts,
                };
                groups.entry(id).or_default().push(virtual_host.clone());
            }
        }

        groups
            .values_mut()
            .for_each(|virtual_hosts| virtual_hosts.sort_by(|a, b| a.name.cmp(&b.name)));
        GroupTable::new(groups)
    }
}

impl GroupTable {
    /// A table of groups whose virtual hosts are sorted by name.
    fn new(groups: BTreeMap<GroupId, Vec<PlannedVirtualHost>>) -> Self {
        let mut named: Vec<(&str, (usize, usize))> = Vec::new();

        for (group, virtual_hosts) in groups.values().enumerate() {
            named.extend(
                virtual_hosts
                    .iter()
                    .enumerate()
                    .map(|(host, virtual_host)| (virtual_host.name.as_str(), (group, host))),
            );
        }

        named.sort_unstable();
        let order = named.into_iter().map(|(_, index)| index).collect();
        Self {
            order,
            groups: groups
                .into_iter()
                .map(|(id, virtual_hosts)| (id, virtual_hosts.into()))
                .collect(),
        }
    }
}

impl Query for Group {
    type Value = Arc<[PlannedVirtualHost]>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&Groups { at: self.at })
            .groups
            .get(&self.id)
            .cloned()
            .unwrap_or_default()
    }
}

impl Query for GroupHosts {
    type Value = Vec<Bytes>;

    fn compute(&self, view: &View<'_>) -> Vec<Bytes> {
        let virtual_hosts = view.get(&Group {
            at: self.at,
            id: self.id.clone(),
        });
        let names = virtual_hosts
            .iter()
            .map(|virtual_host| virtual_host.name.clone())
            .collect();
        let lost = view.get(&LostDomains { at: self.at, names });

        let bytes = |virtual_host: &PlannedVirtualHost| {
            let domains =
                DomainChoice::Without(lost.get(&virtual_host.name).cloned().unwrap_or_default());
            (*view.get(&VirtualHostBytes {
                at: self.at,
                virtual_host: virtual_host.clone(),
                domains,
            }))
            .clone()
        };

        virtual_hosts.iter().map(bytes).collect()
    }
}

/// The namespace that a virtual host belongs to.
fn namespace_of(virtual_host: &PlannedVirtualHost) -> Namespace {
    let of_service = virtual_host
        .service
        .as_ref()
        .map(|service| &service.key.namespace);
    of_service
        .or(virtual_host.owner.as_ref().map(|owner| &owner.namespace))
        .cloned()
        .unwrap_or_default()
}

/// FNV-1a: the same on every machine and in every process.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::names::Hostname;

    #[test]
    fn virtual_hosts_are_in_the_order_of_their_names_whatever_their_groups() {
        let virtual_host = |name: &str| PlannedVirtualHost {
            name: name.to_owned(),
            host: Hostname::new(name),
            port: 80,
            owner: None,
            service: None,
        };

        let group = |namespace: &str, part, names: &[&str]| {
            (
                GroupId {
                    namespace: Namespace::new(namespace),
                    part,
                },
                names.iter().map(|name| virtual_host(name)).collect(),
            )
        };

        let groups = [
            group("a", 0, &["b:80", "d:80"]),
            group("a", 1, &["a:80"]),
            group("z", 0, &["c:80"]),
        ];
        assert_eq!(
            GroupTable::new(groups.into()).order,
            [(1, 0), (0, 0), (2, 0), (0, 1)]
        );
    }
}
