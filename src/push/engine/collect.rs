//! The queries under every subscription: names, one resource, all resources of an interest.

use std::sync::Arc;

use super::Interest;
use crate::api::names::ResourceName;
use crate::push::query::Query;
use crate::push::resource::{Collection, Resource, ResourceType};
use crate::push::view::View;

/// All resources of one type for one interest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CollectionOf {
    /// The type.
    pub(super) kind: ResourceType,
    /// What is wanted of it.
    pub(super) interest: Interest,
}

/// One resource by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ResourceOf {
    /// The type.
    pub(super) kind: ResourceType,
    /// The name.
    pub(super) name: ResourceName,
}

/// The names that a wildcard stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesOf {
    /// The type.
    kind: ResourceType,
}

/// The names that come with another resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MembersOf {
    /// Their type.
    kind: ResourceType,
    /// The other resource.
    of: ResourceName,
}

impl Query for MembersOf {
    type Value = Vec<ResourceName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.translator().members(self.kind, &self.of, view)
    }

    fn rescue(&self, previous: Option<&Self::Value>) -> Option<Self::Value> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesOf {
    type Value = Vec<ResourceName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut names = view.translator().names(self.kind, view);
        names.sort_unstable();
        names.dedup();
        names
    }

    fn rescue(&self, previous: Option<&Self::Value>) -> Option<Self::Value> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for ResourceOf {
    type Value = Option<Arc<Resource>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let body = view.translator().resource(self.kind, &self.name, view)?;
        Some(Arc::new(Resource::new(self.kind, self.name.clone(), body)))
    }

    fn rescue(&self, previous: Option<&Self::Value>) -> Option<Self::Value> {
        Some(previous.cloned().flatten())
    }
}

impl Query for CollectionOf {
    type Value = Collection;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let kind = self.kind;
        if kind == ResourceType::VirtualHost {
            return self.members(view);
        }
        let all = self.interest.wildcard.then(|| view.get(&NamesOf { kind }));
        let mut names: Vec<&ResourceName> =
            all.iter().flat_map(|all| all.iter()).chain(&*self.interest.names).collect();
        if self.interest.wildcard && !self.interest.names.is_empty() {
            names.sort_unstable();
            names.dedup();
        }
        let one = |name: &ResourceName| (*view.get(&ResourceOf { kind, name: name.clone() })).clone();
        Collection { kind, resources: names.into_iter().filter_map(one).collect() }
    }
}

impl CollectionOf {
    /// All that comes with the resources that are named: the virtual hosts of the route configurations that a client has.
    fn members(&self, view: &View<'_>) -> Collection {
        let kind = self.kind;
        let lists: Vec<_> =
            self.interest.names.iter().map(|of| view.get(&MembersOf { kind, of: of.clone() })).collect();
        let mut names: Vec<&ResourceName> = lists.iter().flat_map(|list| list.iter()).collect();
        names.sort_unstable();
        names.dedup();
        let one = |name: &ResourceName| (*view.get(&ResourceOf { kind, name: name.clone() })).clone();
        Collection { kind, resources: names.into_iter().filter_map(one).collect() }
    }
}
