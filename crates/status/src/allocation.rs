//! Allocates addresses for the hosts of ServiceEntries (Istio's
//! `pilot/pkg/controllers/ipallocate`).
//!
//! An allocated address is kept. If two entries have the same, an address in a spec wins, then the
//! oldest entry; the others get new addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;

use super::address_pool::{AddressPool, Range};
use navarch_api::istio::{Resolution, ServiceEntryAddress};
use navarch_api::object::NamespacedName;

/// The label that disables allocation for an entry.
const SWITCH: &str = "networking.istio.io/enable-autoallocate-ip";

/// The relevant fields of a ServiceEntry.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServiceEntryFields {
    /// Its creation time.
    pub created: Option<Timestamp>,
    /// Its `resourceVersion`.
    pub resource_version: String,
    /// The value of the label that switches allocation.
    pub switch: Option<String>,
    pub hosts: Vec<String>,
    /// The addresses of its spec.
    pub addresses: Vec<String>,
    pub resolution: Resolution,
    /// Whether `status` exists, which decides how it is patched.
    pub has_status: bool,
    /// Its allocated addresses.
    pub given: Vec<ServiceEntryAddress>,
}

/// The reason of a claim to an address; the smallest claim wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// The address is in the spec.
    Written(NamespacedName),
    /// The address was allocated to an entry with this creation time.
    Given(Option<Timestamp>, NamespacedName),
}

/// All entries and addresses.
#[derive(Debug)]
pub(super) struct Allocation {
    entries: BTreeMap<NamespacedName, ServiceEntryFields>,
    /// The claims to addresses of the ranges.
    claims: BTreeMap<IpAddr, BTreeSet<Claim>>,
    /// The address ranges, IPv4 before IPv6.
    pools: [(Range, AddressPool); 2],
    /// Entries to reconcile.
    due: BTreeSet<NamespacedName>,
}

impl ServiceEntryFields {
    /// The name of the label that switches allocation.
    pub(super) const SWITCH: &'static str = SWITCH;

    /// Whether its hosts get addresses.
    fn needs_addresses(&self) -> bool {
        let is_disabled = self
            .switch
            .as_ref()
            .is_some_and(|value| value.eq_ignore_ascii_case("false"));
        !is_disabled && self.resolution != Resolution::None && self.addresses.is_empty()
    }

    /// The hosts that get addresses: each once, and wildcards only with dynamic DNS resolution.
    fn wanted(&self) -> Vec<&String> {
        let mut seen = BTreeSet::new();
        let mut hosts = self
            .hosts
            .iter()
            .filter(|host| !host.starts_with('*') || self.resolution == Resolution::DynamicDns)
            .collect::<Vec<_>>();
        hosts.retain(|host| seen.insert(*host));
        hosts
    }

    /// Its valid allocated addresses.
    fn given(&self) -> impl Iterator<Item = IpAddr> {
        self.given
            .iter()
            .filter_map(|address| parse(&address.value))
    }
}

impl Allocation {
    /// Allocates from these ranges, IPv4 and IPv6.
    pub(super) fn new(ranges: [Range; 2]) -> Self {
        Self {
            entries: BTreeMap::new(),
            claims: BTreeMap::new(),
            pools: ranges.map(|range| (range, AddressPool::new(range))),
            due: BTreeSet::new(),
        }
    }

    /// Names of all entries.
    pub(super) fn names(&self) -> impl Iterator<Item = &NamespacedName> {
        self.entries.keys()
    }

    pub(super) fn entry(&self, name: &NamespacedName) -> Option<&ServiceEntryFields> {
        self.entries.get(name)
    }

    /// Adds or updates an entry.
    pub(super) fn put(&mut self, name: NamespacedName, entry: ServiceEntryFields) {
        self.remove(&name);
        for (address, claim) in claims(&name, &entry) {
            if self.pools.iter().any(|(range, _)| range.contains(address)) {
                let holders = self.claims.entry(address).or_default();
                holders.insert(claim);
                if holders.len() > 1 {
                    self.due
                        .extend(holders.iter().map(|claim| claim.owner().clone()));
                }
            }
        }
        self.due.insert(name.clone());
        self.entries.insert(name, entry);
    }

    /// Removes an entry and releases its addresses.
    pub(super) fn remove(&mut self, name: &NamespacedName) {
        let Some(entry) = self.entries.remove(name) else {
            return;
        };
        for (address, claim) in claims(name, &entry) {
            if let Some(holders) = self.claims.get_mut(&address) {
                holders.remove(&claim);
                if holders.is_empty() {
                    self.claims.remove(&address);
                }
            }
        }
    }

    /// Schedules an entry.
    pub(super) fn is_due(&mut self, name: NamespacedName) {
        self.due.insert(name);
    }

    /// The scheduled entries, oldest first, so that the oldest gets the first addresses.
    pub(super) fn take_due(&mut self) -> Vec<NamespacedName> {
        let mut due: Vec<_> = std::mem::take(&mut self.due).into_iter().collect();
        due.sort_by_key(|name| self.entries.get(name).and_then(|entry| entry.created));
        due
    }

    /// The addresses that an entry's status should have, if they differ. They are allocated from
    /// then on.
    pub(super) fn plan(&mut self, name: &NamespacedName) -> Option<Vec<ServiceEntryAddress>> {
        let entry = self.entries.get(name)?.clone();
        if !entry.needs_addresses() {
            return (!entry.given.is_empty()).then(|| self.grant(name, entry, Vec::new()));
        }

        let lost = entry
            .given()
            .any(|address| !self.wins(name, &entry, address));
        let hosts = entry.wanted();
        let known: BTreeSet<&String> = entry
            .given
            .iter()
            .filter(|address| parse(&address.value).is_some())
            .map(|address| &address.host)
            .collect();

        if !lost && known == hosts.iter().copied().collect() {
            return None;
        }

        let mut granted = Vec::new();
        let mut fresh = BTreeSet::new();

        for host in hosts {
            // As in Istio, an entry that lost one address gets new ones for all hosts.
            let kept = entry
                .given
                .iter()
                .filter(|address| !lost && address.host == *host);
            let kept: Vec<_> = kept
                .filter(|address| parse(&address.value).is_some())
                .cloned()
                .collect();

            if kept.is_empty() {
                let addresses = self.fresh(&fresh);
                fresh.extend(addresses.iter().copied());
                granted.extend(addresses.iter().map(|ip| ServiceEntryAddress {
                    value: ip.to_string(),
                    host: host.clone(),
                }));
            } else {
                granted.extend(kept);
            }
        }

        Some(self.grant(name, entry, granted))
    }

    /// Whether the claim of `name` to an allocated address wins.
    fn wins(&self, name: &NamespacedName, entry: &ServiceEntryFields, address: IpAddr) -> bool {
        let first = self.claims.get(&address).and_then(BTreeSet::first);
        first.is_none_or(|first| *first == Claim::Given(entry.created, name.clone()))
    }

    /// A free address of each family.
    fn fresh(&mut self, also_taken: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
        let claims = &self.claims;
        let taken = |address| claims.contains_key(&address) || also_taken.contains(&address);
        self.pools
            .iter_mut()
            .filter_map(|(_, pool)| pool.take(taken))
            .collect()
    }

    /// Records addresses that are about to be written, so that they are not allocated again.
    fn grant(
        &mut self,
        name: &NamespacedName,
        mut entry: ServiceEntryFields,
        granted: Vec<ServiceEntryAddress>,
    ) -> Vec<ServiceEntryAddress> {
        entry.given.clone_from(&granted);
        let due = std::mem::take(&mut self.due);
        self.put(name.clone(), entry);
        self.due = due;
        granted
    }
}

impl Claim {
    /// The claiming entry.
    fn owner(&self) -> &NamespacedName {
        match self {
            Self::Written(name) | Self::Given(_, name) => name,
        }
    }
}

/// The addresses that an entry claims.
fn claims(name: &NamespacedName, entry: &ServiceEntryFields) -> Vec<(IpAddr, Claim)> {
    let written = entry.addresses.iter().filter_map(|address| parse(address));
    let written = written.map(|address| (address, Claim::Written(name.clone())));
    let given = entry
        .given()
        .map(|address| (address, Claim::Given(entry.created, name.clone())));
    written.chain(given).collect()
}

/// Parses an address; an IPv4-mapped IPv6 address is converted to IPv4.
fn parse(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>()
        .ok()
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

    fn entry(age: i64, hosts: &[&str]) -> ServiceEntryFields {
        ServiceEntryFields {
            created: Some(Timestamp::from_second(1000 - age).unwrap()),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            resolution: Resolution::Dns,
            ..ServiceEntryFields::default()
        }
    }

    fn allocation() -> Allocation {
        Allocation::new([Range::IPV4, Range::IPV6])
    }

    /// Plans all that is due and gives it as texts.
    fn settle(allocation: &mut Allocation) -> Vec<String> {
        let due = allocation.take_due();
        let plans = due
            .iter()
            .filter_map(|name| Some((name.clone(), allocation.plan(name)?)))
            .collect::<Vec<_>>();
        let line = |(name, granted): (NamespacedName, Vec<ServiceEntryAddress>)| {
            let granted: Vec<_> = granted
                .iter()
                .map(|address| format!("{}={}", address.host, address.value))
                .collect();
            format!("{name}: {}", granted.join(" "))
        };
        plans.into_iter().map(line).collect()
    }

    #[test]
    fn the_oldest_entry_has_the_first_addresses_and_keeps_them() {
        let mut all = allocation();
        all.put(name("a"), entry(1, &["a.com"]));
        all.put(
            name("b"),
            entry(2, &["b.com", "*.b.com", "b2.com", "b.com"]),
        );
        assert_eq!(
            settle(&mut all),
            [
                "shop/b: b.com=240.240.0.1 b.com=2001:2::1 b2.com=240.240.0.2 b2.com=2001:2::2",
                "shop/a: a.com=240.240.0.3 a.com=2001:2::3",
            ]
        );

        let mut more = all.entry(&name("a")).unwrap().clone();
        more.hosts.push("a2.com".to_owned());
        all.put(name("a"), more);
        assert_eq!(
            settle(&mut all),
            ["shop/a: a.com=240.240.0.3 a.com=2001:2::3 a2.com=240.240.0.4 a2.com=2001:2::4"]
        );
        assert_eq!(settle(&mut all), Vec::<String>::new());
    }

    #[test]
    fn the_loser_of_an_address_conflict_gets_new_addresses() {
        let given = |entry: ServiceEntryFields, ip: &str| {
            let given = vec![ServiceEntryAddress {
                value: ip.to_owned(),
                host: entry.hosts[0].clone(),
            }];
            ServiceEntryFields {
                given,
                has_status: true,
                ..entry
            }
        };

        let mut all = allocation();
        all.put(
            name("young"),
            given(entry(1, &["young.com"]), "240.240.0.1"),
        );
        all.put(name("old"), given(entry(9, &["old.com"]), "240.240.0.1"));
        assert_eq!(
            settle(&mut all),
            ["shop/young: young.com=240.240.0.2 young.com=2001:2::1"]
        );

        let written = ServiceEntryFields {
            addresses: vec!["240.240.0.1".to_owned()],
            ..entry(0, &["written.com"])
        };
        all.put(name("written"), written);
        assert_eq!(
            settle(&mut all),
            ["shop/old: old.com=240.240.0.3 old.com=2001:2::2"]
        );
    }

    #[test]
    fn addresses_are_released_when_no_longer_needed() {
        for change in [
            |entry: &mut ServiceEntryFields| entry.resolution = Resolution::None,
            |entry: &mut ServiceEntryFields| entry.addresses = vec!["1.2.3.4".to_owned()],
            |entry: &mut ServiceEntryFields| entry.switch = Some("False".to_owned()),
        ] {
            let mut all = allocation();
            all.put(name("a"), entry(1, &["a.com"]));
            settle(&mut all);
            let mut changed = all.entry(&name("a")).unwrap().clone();
            change(&mut changed);
            all.put(name("a"), changed);
            assert_eq!(settle(&mut all), ["shop/a: "]);
            assert_eq!(settle(&mut all), Vec::<String>::new());
        }
    }

    #[test]
    fn wildcards_get_addresses_only_with_dynamic_dns() {
        let mut all = allocation();
        all.put(name("a"), entry(1, &["*.com"]));
        all.put(
            name("b"),
            ServiceEntryFields {
                resolution: Resolution::DynamicDns,
                ..entry(1, &["*.org"])
            },
        );
        assert_eq!(
            settle(&mut all),
            ["shop/b: *.org=240.240.0.1 *.org=2001:2::1"]
        );
    }
}
