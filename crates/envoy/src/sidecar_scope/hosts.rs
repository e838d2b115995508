//! The `hosts` of an egress listener, which select the imported services and VirtualServices.

use std::collections::{BTreeMap, BTreeSet};

use navarch_api::hostname;
use navarch_api::names::Namespace;

/// The `hosts` of one egress listener, with `.` already resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EgressHosts {
    /// Hosts imported from, or excluded in, one namespace.
    by_namespace: BTreeMap<Namespace, HostSet>,
    /// Hosts imported from, or excluded in, every namespace (`*/…`, `~*/…`).
    everywhere: Option<HostSet>,
    /// Whether every entry is a full name in a named namespace.
    pub(super) all_exact: bool,
}

/// The hosts of one namespace, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostSet {
    /// Full names.
    exact: BTreeSet<String>,
    wildcards: Vec<String>,
    /// Excluded names and wildcards (`~namespace/host`).
    excluded: Vec<String>,
}

/// How the host of a VirtualService is compared with the imported ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostSemantics {
    /// Either may cover the other: a VirtualService for `*.com` is imported by `a.com`.
    Istio,
    /// The VirtualService's host must be covered by an imported one, for routes of the Gateway API.
    Gateway,
}

impl EgressHosts {
    /// The hosts of the default scope: `*/*`.
    pub(super) fn everything() -> Self {
        Self::parse(&["*/*".to_owned()], &Namespace::default())
    }

    /// Parses `namespace/host` entries; malformed ones are skipped.
    pub(super) fn parse(entries: &[String], own: &Namespace) -> Self {
        let mut hosts = Self {
            all_exact: true,
            ..Self::default()
        };

        for entry in entries {
            let Some((namespace, host)) = entry.split_once('/') else {
                continue;
            };

            if host.contains('/') {
                continue;
            }

            let (excludes, namespace) = match namespace.strip_prefix('~') {
                Some("") => (true, "*"),
                Some(rest) => (true, rest),
                None => (false, namespace),
            };
            let everywhere = namespace == "*";
            let set = if everywhere {
                hosts.everywhere.get_or_insert_with(HostSet::default)
            } else {
                let namespace = if namespace == "." {
                    own.clone()
                } else {
                    Namespace::new(namespace)
                };
                hosts.by_namespace.entry(namespace).or_default()
            };

            if excludes {
                set.excluded.push(host.to_owned());
                continue;
            }

            let wildcard = hostname::is_wildcard(host);
            if wildcard {
                set.wildcards.push(host.to_owned());
            } else {
                set.exact.insert(host.to_owned());
            }

            hosts.all_exact &= !wildcard && !everywhere;
        }

        hosts
    }

    /// Whether an entry contains the own namespace as `.`.
    pub(super) fn name_own_namespace(entries: &[String]) -> bool {
        entries
            .iter()
            .any(|entry| entry.starts_with("./") || entry.starts_with("~./"))
    }

    /// The namespaces from which hosts may be imported; `None` if from any.
    pub(super) fn namespaces(&self) -> Option<impl Iterator<Item = &Namespace>> {
        let imports_everywhere = self.everywhere.as_ref().is_some_and(HostSet::has_imports);
        (!imports_everywhere).then(|| self.by_namespace.keys())
    }

    pub(super) fn excludes(&self, namespace: &Namespace, host: &str) -> bool {
        self.by_namespace
            .get(namespace)
            .is_some_and(|set| set.excludes(host))
            || self
                .everywhere
                .as_ref()
                .is_some_and(|set| set.excludes(host))
    }

    /// The sets that may import hosts of a namespace, the more specific one first.
    pub(super) fn sets_for<'a>(
        &'a self,
        namespace: &Namespace,
    ) -> impl Iterator<Item = &'a HostSet> {
        self.by_namespace
            .get(namespace)
            .into_iter()
            .chain(self.everywhere.as_ref())
    }
}

impl HostSet {
    /// Whether it has more than exclusions.
    fn has_imports(&self) -> bool {
        !self.exact.is_empty() || !self.wildcards.is_empty()
    }

    fn excludes(&self, host: &str) -> bool {
        self.excluded
            .iter()
            .any(|excluded| hostname::is_subset_of(host, excluded))
    }

    /// Whether a service's host is imported.
    pub(super) fn imports(&self, host: &str) -> bool {
        self.exact.contains(host)
            || self
                .wildcards
                .iter()
                .any(|wildcard| hostname::is_subset_of(host, wildcard))
    }

    /// Whether a VirtualService's host is imported.
    pub(super) fn imports_virtual(&self, host: &str, semantics: HostSemantics) -> bool {
        match semantics {
            HostSemantics::Gateway => self.imports(host),
            HostSemantics::Istio => {
                self.exact.contains(host)
                    || self
                        .wildcards
                        .iter()
                        .any(|wildcard| hostname::matches(host, wildcard))
                    || (hostname::is_wildcard(host)
                        && self
                            .exact
                            .iter()
                            .any(|exact| hostname::matches(host, exact)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(entries: &[&str]) -> EgressHosts {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        EgressHosts::parse(&entries, &Namespace::new("own"))
    }

    fn imported(hosts: &EgressHosts, namespace: &str, host: &str) -> bool {
        let namespace = Namespace::new(namespace);
        !hosts.excludes(&namespace, host) && hosts.sets_for(&namespace).any(|set| set.imports(host))
    }

    #[test]
    fn a_dot_is_the_own_namespace() {
        let hosts = hosts(&["./*", "bank/pay.example"]);
        assert!(imported(&hosts, "own", "any.example"));
        assert!(imported(&hosts, "bank", "pay.example"));
        assert!(!imported(&hosts, "bank", "any.example"));
        assert!(!imported(&hosts, "other", "any.example"));
    }

    #[test]
    fn exclusions_beat_imports_of_any_namespace() {
        let hosts = hosts(&["*/*", "~bank/pay.example", "~/*.secret.example"]);
        assert!(imported(&hosts, "bank", "shop.example"));
        assert!(!imported(&hosts, "bank", "pay.example"));
        assert!(imported(&hosts, "shop", "pay.example"));
        assert!(!imported(&hosts, "shop", "a.secret.example"));
    }

    #[test]
    fn a_wildcard_virtual_service_is_imported_by_a_name_below_it_unless_it_is_a_gateway_route() {
        let hosts = hosts(&["own/a.example"]);
        let set = hosts.sets_for(&Namespace::new("own")).next().unwrap();
        assert!(set.imports_virtual("*.example", HostSemantics::Istio));
        assert!(!set.imports_virtual("*.example", HostSemantics::Gateway));
        assert!(!set.imports("*.example"));
    }

    #[test]
    fn hosts_are_imported_from_the_named_namespaces_unless_one_names_all() {
        let namespaces = |entries: &[&str]| {
            let hosts = hosts(entries);
            let names = hosts.namespaces()?.map(Namespace::to_string);
            Some(names.collect::<Vec<_>>())
        };
        let named = Some(vec!["bank".to_owned(), "own".to_owned()]);
        assert_eq!(namespaces(&["./*", "bank/pay.example"]), named);
        assert_eq!(namespaces(&["./*", "bank/a", "~*/secret.example"]), named);
        assert_eq!(namespaces(&["./*", "*/pay.example"]), None);
        assert_eq!(namespaces(&["*/*"]), None);
        assert_eq!(namespaces(&[]), Some(Vec::new()));
    }

    #[test]
    fn only_full_names_in_named_namespaces_are_all_exact() {
        assert!(hosts(&["own/a.example", "./b.example"]).all_exact);
        assert!(!hosts(&["*/a.example"]).all_exact);
        assert!(!hosts(&["own/*.example"]).all_exact);
    }
}
