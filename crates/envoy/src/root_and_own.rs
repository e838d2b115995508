//! The namespaces whose objects can apply to a proxy: the root namespace, and the proxy's own.

use std::collections::BTreeSet;

use navarch_api::names::Namespace;
use navarch_push::namespace_list::NamespaceList;
use navarch_push::view::View;

/// The namespace whose objects can apply to the whole mesh.
pub(crate) fn root_namespace(view: &View<'_>) -> Namespace {
    Namespace::new(&view.mesh().config.root_namespace)
}

/// The namespaces that have objects of a kind.
///
/// The root namespace is apart: its objects can apply to all proxies, so that it must not
/// distinguish its own ones from those of namespaces without objects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InhabitedNamespaces {
    /// Whether the root namespace is one of them.
    has_root: bool,
    others: NamespaceList,
}

impl InhabitedNamespaces {
    /// Those of `all`.
    pub(crate) fn of(view: &View<'_>, all: impl Iterator<Item = Namespace>) -> Self {
        let mut all: BTreeSet<Namespace> = all.collect();
        Self {
            has_root: all.remove(&root_namespace(view)),
            others: all.into_iter().collect(),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_root && self.others.is_empty()
    }

    /// Those whose objects can apply to the view's proxy: the root namespace, then its own.
    pub(crate) fn root_and_own(&self, view: &View<'_>) -> Vec<Namespace> {
        let own = match self.others.is_empty() {
            true => None,
            false => view.proxy().namespace_in(&self.others),
        };
        let root = self.has_root.then(|| root_namespace(view));
        root.into_iter().chain(own).collect()
    }
}
