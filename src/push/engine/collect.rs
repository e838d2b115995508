//! The queries under every subscription: names, one resource, a run of resources, all resources of an interest.
//!
//! ```text
//! names ─▶ runs ─┬─▶ piece ─┐
//!                ├─▶ piece ─┼─▶ collection
//! resources ─────┴─▶ piece ─┘
//! ```

use std::sync::Arc;

use super::Interest;
use super::runs::{Run, Runs, cut, sort_and_cut};
use crate::api::names::ResourceName;
use crate::push::query::Query;
use crate::push::resource::{Collection, Resource, ResourceType};
use crate::push::resources::Resources;
use crate::push::view::View;

/// Names in a subscription that are cut anew whenever one of their resources changes. Of more, the cut is kept.
const FEW: usize = 32;

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

/// The names that an interest comes to where that takes more than a look at one list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesWanted {
    /// The type.
    kind: ResourceType,
    /// What is wanted of it.
    interest: Interest,
}

/// The resources of a run of names, those that there are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PieceOf {
    /// The type.
    pub(super) kind: ResourceType,
    /// The names.
    pub(super) run: Run,
}

impl Query for MembersOf {
    type Value = Runs;

    fn compute(&self, view: &View<'_>) -> Runs {
        sort_and_cut(&view.translator().members(self.kind, &self.of, view))
    }

    fn rescue(&self, previous: Option<&Runs>) -> Option<Runs> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesOf {
    type Value = Runs;

    fn compute(&self, view: &View<'_>) -> Runs {
        sort_and_cut(&view.translator().names(self.kind, view))
    }

    fn rescue(&self, previous: Option<&Runs>) -> Option<Runs> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesWanted {
    type Value = Runs;

    fn compute(&self, view: &View<'_>) -> Runs {
        let Self { kind, interest } = self;
        if *kind == ResourceType::VirtualHost {
            let lists: Vec<Arc<Runs>> = interest.names.iter().map(|of| members(view, of)).collect();
            sort_and_cut(lists.iter().flat_map(|runs| runs.iter()).flat_map(Run::names))
        } else if interest.wildcard {
            let all = view.get(&NamesOf { kind: *kind });
            sort_and_cut(all.iter().flat_map(Run::names).chain(&*interest.names))
        } else {
            cut(&*interest.names)
        }
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

impl Query for PieceOf {
    type Value = Vec<Arc<Resource>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        resources(view, self.kind, &self.run)
    }
}

impl Query for CollectionOf {
    type Value = Collection;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let kind = self.kind;
        let runs = self.runs(view);
        let resources = match runs.as_slice() {
            // What is no longer than this needs no pieces to share.
            [only] => resources(view, kind, only).into_iter().collect(),
            runs => Resources::of_pieces(runs.iter().map(|run| view.get(&PieceOf { kind, run: run.clone() }))),
        };
        Collection { kind, resources }
    }
}

impl CollectionOf {
    /// The names that are wanted.
    pub(super) fn runs(&self, view: &View<'_>) -> Arc<Runs> {
        let Self { kind, interest } = self;
        let kind = *kind;
        // The virtual hosts of the route configurations that a client has.
        if kind == ResourceType::VirtualHost
            && let Some(of) = interest.names.first()
            && interest.names.len() == 1
        {
            members(view, of)
        } else if kind != ResourceType::VirtualHost && interest.wildcard && interest.names.is_empty() {
            view.get(&NamesOf { kind })
        } else if kind != ResourceType::VirtualHost && !interest.wildcard && interest.names.len() <= FEW {
            Arc::new(cut(&*interest.names))
        } else {
            view.get(&NamesWanted { kind, interest: interest.clone() })
        }
    }
}

/// The virtual hosts of a route configuration.
fn members(view: &View<'_>, of: &ResourceName) -> Arc<Runs> {
    view.get(&MembersOf { kind: ResourceType::VirtualHost, of: of.clone() })
}

/// The resources of a run of names, those that there are.
fn resources(view: &View<'_>, kind: ResourceType, run: &Run) -> Vec<Arc<Resource>> {
    let one = |name: &ResourceName| (*view.get(&ResourceOf { kind, name: name.clone() })).clone();
    run.names().iter().filter_map(one).collect()
}
