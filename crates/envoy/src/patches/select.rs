//! The patches that apply to a proxy.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::attach::{attaches, matches_proxy};
use super::compiled::{Compiled, Patch};
use crate::root_and_own::{InhabitedNamespaces, root_namespace};
use navarch_api::istio::{ApplyTo, EnvoyFilter, PatchOperation};
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The class of patched resources: a resource reads the patches of its own class only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatchClass {
    /// Clusters of CDS (`applyTo: CLUSTER`).
    Clusters,
    /// Listeners, their filter chains and filters.
    Listeners,
    /// Route configurations, their virtual hosts and routes.
    Routes,
    /// Configurations of extensions.
    Extensions,
    /// `BOOTSTRAP`: of proxies that ask for their bootstrap.
    Bootstrap,
}

/// Patches, in the order in which they are applied.
pub type Patches = Vec<Arc<Patch>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PatchId {
    filter: NamespacedName,
    /// Its index in the filter.
    index: usize,
}

/// The namespaces with EnvoyFilters that have patches of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PatchingNamespaces(PatchClass);

/// The EnvoyFilters of a namespace that have patches of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FiltersOf(Namespace, PatchClass);

/// The patches of a class that apply to a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Applied(PatchClass);

/// The same with their contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AppliedPatches(PatchClass);

/// The services in the annotations of a proxy's EnvoyFilters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReferencedServices;

/// The patches of a class for the proxy, in order; `None` if there are none.
#[must_use]
pub fn patches(view: &View<'_>, class: PatchClass) -> Option<Arc<Patches>> {
    if view.get(&PatchingNamespaces(class)).is_empty() || view.derived(&Applied(class)).is_empty() {
        return None;
    }
    Some(view.get(&AppliedPatches(class)))
}

/// The services, as `host` or `namespace/host`, in the annotations of the proxy's EnvoyFilters.
#[must_use]
pub fn referenced_services(view: &View<'_>) -> Arc<Vec<Arc<str>>> {
    view.derived(&ReferencedServices)
}

impl PatchClass {
    /// The class of a patch target.
    fn of(apply_to: ApplyTo) -> Option<Self> {
        match apply_to {
            ApplyTo::Cluster => Some(Self::Clusters),
            ApplyTo::Listener
            | ApplyTo::FilterChain
            | ApplyTo::NetworkFilter
            | ApplyTo::HttpFilter
            | ApplyTo::ListenerFilter => Some(Self::Listeners),
            ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => {
                Some(Self::Routes)
            }
            ApplyTo::ExtensionConfig => Some(Self::Extensions),
            ApplyTo::Bootstrap => Some(Self::Bootstrap),
            ApplyTo::Invalid => None,
        }
    }
}

fn has_class(filter: &EnvoyFilter, class: PatchClass) -> bool {
    let is_empty = |patch: &&navarch_api::istio::EnvoyConfigPatch| {
        patch
            .patch
            .as_ref()
            .is_none_or(|patch| patch.operation == PatchOperation::Invalid)
    };
    let mut real = filter
        .config_patches
        .iter()
        .filter(|patch| !is_empty(patch));
    real.any(|patch| PatchClass::of(patch.apply_to) == Some(class))
}

impl Query for PatchingNamespaces {
    type Value = InhabitedNamespaces;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let patching = view
            .list_all::<EnvoyFilter>()
            .filter(|filter| has_class(&filter.spec, self.0));
        let namespaces = patching.map(|filter| filter.meta.key.namespace.clone());
        InhabitedNamespaces::of(view, namespaces)
    }
}

impl Query for FiltersOf {
    type Value = Vec<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let patching = view
            .list::<EnvoyFilter>(&self.0)
            .filter(|filter| has_class(&filter.spec, self.1));
        patching.map(|filter| filter.meta.key()).collect()
    }
}

impl Query for Applied {
    type Value = Vec<PatchId>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let patching = view.get(&PatchingNamespaces(self.0));
        let mut filters = Vec::new();

        for namespace in patching.root_and_own(view) {
            let names = view.get(&FiltersOf(namespace, self.0));
            filters.extend(
                names
                    .iter()
                    .map(|name| view.get(&Compiled { name: name.clone() })),
            );
        }

        let mut filters: Vec<_> = filters
            .iter()
            .filter_map(|filter| filter.as_ref().as_ref())
            .collect();
        filters.retain(|filter| attaches(view, filter));
        let root = &view.mesh().config.root_namespace;
        filters.sort_by(|a, b| a.order(b, root));
        let patches = filters.into_iter().flat_map(|filter| &filter.patches);
        let of_class = patches.filter(|patch| PatchClass::of(patch.apply_to) == Some(self.0));
        let for_proxy = of_class.filter(|patch| matches_proxy(view.proxy(), patch));

        for_proxy
            .map(|patch| PatchId {
                filter: patch.filter.clone(),
                index: patch.index,
            })
            .collect()
    }
}

impl ProxyQuery for Applied {}

impl Query for AppliedPatches {
    type Value = Patches;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut patches = Vec::new();
        for PatchId { filter, index } in view.derived(&Applied(self.0)).iter() {
            let compiled = view.get(&Compiled {
                name: filter.clone(),
            });
            let of_filter = compiled.iter().flat_map(|filter| {
                let at = filter
                    .patches
                    .binary_search_by_key(index, |patch| patch.index)
                    .ok()?;
                filter.patches.get(at)
            });
            patches.extend(of_filter.cloned());
        }
        patches
    }
}

impl Query for ReferencedServices {
    type Value = Vec<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let root = root_namespace(view);
        let namespaces = BTreeSet::from([root, view.proxy().namespace()]);
        let mut services = BTreeSet::new();
        for namespace in &namespaces {
            for filter in view.list::<EnvoyFilter>(namespace) {
                let compiled = view.get(&Compiled {
                    name: filter.meta.key(),
                });
                let attached = compiled.iter().filter(|filter| attaches(view, filter));
                services.extend(attached.flat_map(|filter| filter.services.iter().cloned()));
            }
        }
        services.into_iter().collect()
    }
}

impl ProxyQuery for ReferencedServices {}
