//! Which Sidecar applies to a proxy.

use std::collections::BTreeMap;

use navarch_api::istio::Sidecar;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_push::namespace_list::NamespaceList;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::Labels;

use crate::root_and_own::root_namespace;

/// The source of a proxy's visible services.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// No Sidecar: all services that are exported to the proxy's namespace; in conflicts between
    /// hosts its own namespace takes precedence.
    Default,
    /// The scope that a Sidecar declares.
    Sidecar(NamespacedName),
    /// The scope of gateways and waypoints: all services that are exported to their namespace; in
    /// conflicts between hosts the oldest takes precedence.
    Gateway,
}

/// The scope of the view's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ScopeOfProxy;

/// The root namespace of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RootNamespace;

/// All Sidecars, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SidecarIndex;

/// The value of [`SidecarIndex`].
#[derive(Debug, PartialEq)]
struct Sidecars {
    /// By namespace: those with a selector first, then the oldest first.
    by_namespace: BTreeMap<Namespace, Vec<Candidate>>,
    /// The namespaces of it.
    namespaces: NamespaceList,
    /// The root namespace's Sidecar for namespaces without one.
    root: Option<NamespacedName>,
}

/// A Sidecar that may apply.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    name: NamespacedName,
    /// The labels of its selector; `None` means the whole namespace.
    selector: Option<Labels>,
}

impl Query for ScopeOfProxy {
    type Value = Scope;

    fn compute(&self, view: &View<'_>) -> Scope {
        let proxy = view.proxy();
        if proxy.kind() != ProxyKind::Sidecar {
            return Scope::Gateway;
        }

        let index = view.get(&SidecarIndex);
        if let Some(namespace) = proxy.namespace_in(&index.namespaces)
            && let Some(candidates) = index.by_namespace.get(&namespace)
        {
            for candidate in candidates {
                if candidate
                    .selector
                    .as_ref()
                    .is_none_or(|selector| proxy.selected_by(selector))
                {
                    return Scope::Sidecar(candidate.name.clone());
                }
            }
        }

        index.root.clone().map_or(Scope::Default, Scope::Sidecar)
    }
}

impl ProxyQuery for ScopeOfProxy {}

impl Query for RootNamespace {
    type Value = Namespace;

    fn compute(&self, view: &View<'_>) -> Namespace {
        root_namespace(view)
    }
}

impl Query for SidecarIndex {
    type Value = Sidecars;

    fn compute(&self, view: &View<'_>) -> Sidecars {
        let root_namespace = view.get(&RootNamespace);
        let mut sidecars: Vec<_> = view.list_all::<Sidecar>().collect();
        sidecars.sort_by(|a, b| {
            let rank = |sidecar: &Sidecar| sidecar.workload_selector.is_none();
            rank(&a.spec)
                .cmp(&rank(&b.spec))
                .then_with(|| a.meta.created.cmp(&b.meta.created))
                .then_with(|| a.meta.key.name.cmp(&b.meta.key.name))
        });

        let mut by_namespace: BTreeMap<Namespace, Vec<Candidate>> = BTreeMap::new();

        for sidecar in &sidecars {
            let selector = sidecar.spec.workload_selector.as_ref().map(|selector| {
                selector
                    .labels
                    .iter()
                    .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                    .collect()
            });

            let candidate = Candidate {
                name: sidecar.meta.key(),
                selector,
            };
            by_namespace
                .entry(sidecar.meta.key.namespace.clone())
                .or_default()
                .push(candidate);
        }

        let root = by_namespace
            .get(&*root_namespace)
            .and_then(|candidates| {
                candidates
                    .iter()
                    .find(|candidate| candidate.selector.is_none())
            })
            .map(|candidate| candidate.name.clone());

        Sidecars {
            namespaces: by_namespace.keys().cloned().collect(),
            by_namespace,
            root,
        }
    }
}
