//! The rules for a host: an index by namespace and the queries that select one host from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::merge::{MergedRule, export_to, merge_rules};
use crate::config_objects;
use navarch_api::istio::DestinationRule;
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{NamespacedName, Object};
use navarch_push::namespace_list::NamespaceList;
use navarch_push::query::Query;
use navarch_push::view::View;

/// A subset of a namespace's rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Pool {
    /// The rules that proxies of the namespace see.
    Local,
    /// The rules that other namespaces may see.
    Exported,
    /// The rules of the root namespace that no other namespace sees.
    RootPrivate,
}

/// The rules of one pool of one namespace that match a host most specifically, merged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RulesOfHost {
    /// The namespace that owns the rules.
    pub(super) namespace: Namespace,
    /// The subset of rules.
    pub(super) pool: Pool,
    /// The service's host.
    pub(super) host: Hostname,
}

/// The namespaces with a local rule for this host, sorted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClientNamespaces(pub(super) Hostname);

/// The hosts of a namespace's rules.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct HostsOf(Namespace);

/// For every host of a rule, the namespaces with a local rule for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct NamespacesOfHosts;

/// The rules of a host within one pool, by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct NamesOfHost(RulesOfHost);

/// Names of rules by host, in the order in which they are merged.
type HostIndex = BTreeMap<Hostname, Vec<NamespacedName>>;

/// The fields of a rule that determine where it applies.
struct Placement {
    /// The host, completed.
    host: Hostname,
    /// Whether proxies of its own namespace see it.
    local: bool,
    /// Whether no other namespace sees it.
    private: bool,
}

impl Placement {
    /// The placement of a rule. `private_default` is the mesh default for rules without `exportTo`.
    fn of(object: &Object<DestinationRule>, domain: &str, private_default: bool) -> Self {
        let own = &object.meta.key.namespace;
        let shown = export_to(&object.spec);
        let named = |name: &str| shown.contains(name);
        let local = shown.is_empty() || named("*") || named(".") || named(own.as_str());
        let private = match shown.len() {
            0 => private_default,
            1 => named(".") || named(own.as_str()),
            _ => false,
        };
        let host = Hostname::resolve(&object.spec.host, own.as_str(), domain);
        Self {
            host,
            local,
            private,
        }
    }
}

/// Rules with a selector first, then by age and name.
fn sort(objects: &mut [Arc<Object<DestinationRule>>]) {
    objects.sort_by(|a, b| {
        let key = |object: &Object<DestinationRule>| {
            (object.spec.workload_selector.is_none(), object.meta.created)
        };
        key(a)
            .cmp(&key(b))
            .then_with(|| a.meta.key.name.cmp(&b.meta.key.name))
    });
}

/// Whether the mesh default is that rules without `exportTo` are private.
fn private_default(view: &View<'_>) -> bool {
    view.mesh()
        .config
        .default_destination_rule_export_to
        .iter()
        .any(|namespace| namespace == ".")
}

impl Query for HostsOf {
    type Value = BTreeMap<Pool, HostIndex>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mesh = view.mesh();
        let domain = mesh.settings.domain_suffix.as_str();
        let private_default = private_default(view);
        let is_root = self.0 == mesh.config.root_namespace.as_str();
        let mut objects = config_objects::destination_rules_of(view, &self.0);
        sort(&mut objects);
        let mut index: BTreeMap<Pool, HostIndex> = BTreeMap::new();

        for object in &objects {
            let placement = Placement::of(object, domain, private_default);
            let mut put = |pool: Pool| {
                index
                    .entry(pool)
                    .or_default()
                    .entry(placement.host.clone())
                    .or_default()
                    .push(object.meta.key());
            };

            if placement.local {
                put(Pool::Local);
            }

            if !placement.private {
                put(Pool::Exported);
            } else if is_root {
                put(Pool::RootPrivate);
            }
        }

        index
    }
}

impl Query for NamespacesOfHosts {
    type Value = BTreeMap<Hostname, BTreeSet<Namespace>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mesh = view.mesh();
        let private_default = private_default(view);
        let mut homes = Self::Value::new();

        for object in config_objects::destination_rules(view).values() {
            let placement = Placement::of(object, &mesh.settings.domain_suffix, private_default);
            let namespace = &object.meta.key.namespace;

            // In the root namespace, exported rules must not precede those of the service's
            // namespace.
            let at_home = if *namespace == mesh.config.root_namespace.as_str() {
                placement.private
            } else {
                placement.local
            };

            if at_home {
                homes
                    .entry(placement.host)
                    .or_default()
                    .insert(namespace.clone());
            }
        }

        homes
    }
}

impl Query for ClientNamespaces {
    type Value = NamespaceList;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let homes = view.get(&NamespacesOfHosts);
        let covering = wildcards(&homes)
            .filter(|(pattern, _)| self.0.subset_of(pattern))
            .map(|(_, found)| found);
        homes
            .get(&self.0)
            .into_iter()
            .chain(covering)
            .flatten()
            .cloned()
            .collect()
    }
}

impl Query for NamesOfHost {
    type Value = Vec<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let hosts = view.get(&HostsOf(self.0.namespace.clone()));
        hosts
            .get(&self.0.pool)
            .and_then(|index| most_specific(index, &self.0.host))
            .cloned()
            .unwrap_or_default()
    }
}

impl Query for RulesOfHost {
    type Value = Vec<Arc<MergedRule>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let names = view.get(&NamesOfHost(self.clone()));
        let rules: Vec<_> = names
            .iter()
            .filter_map(|name| config_objects::destination_rule(view, name))
            .collect();
        let merged = merge_rules(
            rules.iter().map(|rule| &**rule),
            view.mesh().settings.enhanced_destination_rule_merge,
        );
        let declared: usize = rules.iter().map(|rule| rule.spec.subsets.len()).sum();
        if rules.len() > merged.len()
            && merged.iter().map(|rule| rule.subsets.len()).sum::<usize>() < declared
        {
            view.count("pilot_destrule_subsets", self.host.as_str());
        }
        merged
    }
}

/// The wildcard hosts of an index, which are adjacent since all start with `*`.
fn wildcards<T>(index: &BTreeMap<Hostname, T>) -> impl Iterator<Item = (&Hostname, &T)> {
    index
        .range::<str, _>((Bound::Included("*"), Bound::Unbounded))
        .take_while(|(pattern, _)| pattern.is_wildcard())
}

/// The value of the most specific host in the index that covers `host`.
fn most_specific<'a, T>(index: &'a BTreeMap<Hostname, T>, host: &Hostname) -> Option<&'a T> {
    if let Some(exact) = index.get(host) {
        return Some(exact);
    }
    let covering = wildcards(index).filter(|(pattern, _)| host.subset_of(pattern));
    covering
        .min_by(|(a, _), (b, _)| a.more_specific(b))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::object::ObjectMeta;

    /// A rule of namespace `shop` that is exported so.
    fn rule(export_to: &[&str]) -> Object<DestinationRule> {
        Object {
            meta: ObjectMeta {
                key: NamespacedName::new("shop", ""),
                ..ObjectMeta::default()
            },
            spec: DestinationRule {
                host: "reviews".to_owned(),
                export_to: export_to.iter().map(|&name| name.to_owned()).collect(),
                ..DestinationRule::default()
            },
        }
    }

    #[test]
    fn a_rule_is_private_when_only_its_own_namespace_is_named() {
        for (export_to, private_default, local, private) in [
            (&[][..], false, true, false),
            (&[][..], true, true, true),
            (&["."][..], false, true, true),
            (&["shop"][..], false, true, true),
            (&["*"][..], true, true, false),
            (&["bank"][..], false, false, false),
            (&[".", "bank"][..], false, true, false),
        ] {
            let placement = Placement::of(&rule(export_to), "cluster.local", private_default);
            assert_eq!(
                (placement.local, placement.private),
                (local, private),
                "{export_to:?}"
            );
            assert_eq!(placement.host, "reviews.shop.svc.cluster.local");
        }
    }

    #[test]
    fn an_exact_host_wins_over_wildcards_and_the_longest_wildcard_over_the_rest() {
        let index: BTreeMap<Hostname, u8> = [
            ("*", 1),
            ("*.example", 2),
            ("*.shop.example", 3),
            ("a.shop.example", 4),
        ]
        .map(|(host, value)| (Hostname::new(host), value))
        .into();

        for (host, found) in [
            ("a.shop.example", 4),
            ("b.shop.example", 3),
            ("b.example", 2),
            ("b.net", 1),
        ] {
            assert_eq!(
                most_specific(&index, &Hostname::new(host)),
                Some(&found),
                "{host}"
            );
        }
    }
}
