//! The queries under every subscription: names, one resource, a run of resources, all resources of an interest.
//!
//! ```text
//! names ─▶ runs ─┬─▶ piece ─┐
//!                ├─▶ piece ─┼─▶ collection
//! resources ─────┴─▶ piece ─┘
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Interest;
use super::runs::{Run, Runs, cut, sort_and_cut, update};
use crate::query::Query;
use crate::resource::{Collection, Resource, ResourceType};
use crate::resources::Resources;
use crate::view::View;
use navarch_api::names::ResourceName;

/// Names in a subscription that are cut anew whenever one of their resources changes. Of more, the cut is kept.
const MAX_UNCACHED_NAMES: usize = 32;

/// All resources of one type for one interest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CollectionOf {
    pub(super) kind: ResourceType,
    /// What is wanted of it.
    pub(super) interest: Interest,
}

/// One resource by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ResourceOf {
    pub(super) kind: ResourceType,
    pub(super) name: ResourceName,
}

/// The names that a wildcard stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesOf {
    kind: ResourceType,
}

/// The names that are meant by another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MembersOf {
    kind: ResourceType,
    /// The other name.
    of: ResourceName,
}

/// The names that a proxy gets beside those that it names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unnamed {
    kind: ResourceType,
}

/// The names that an interest comes to where that takes more than a look at one list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesWanted {
    kind: ResourceType,
    /// What is wanted of it.
    interest: Interest,
}

/// The names of an interest that mean nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesUnknown {
    kind: ResourceType,
    /// What is wanted of it.
    interest: Interest,
}

/// The resources of a run of names, those that there are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PieceOf {
    pub(super) kind: ResourceType,
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

impl Query for Unnamed {
    type Value = Runs;

    fn compute(&self, view: &View<'_>) -> Runs {
        sort_and_cut(&view.translator().unnamed(self.kind, view))
    }

    fn rescue(&self, previous: Option<&Runs>) -> Option<Runs> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesOf {
    type Value = Runs;

    fn compute(&self, view: &View<'_>) -> Runs {
        if self.kind.is_by_address() {
            // Too many to be listed anew for every one that comes or goes; few are known to the translator alone.
            let known = view.address_names().runs();
            let further: BTreeSet<ResourceName> = view.translator().names(self.kind, view).into_iter().collect();
            return if further.is_empty() { (**known).clone() } else { update(known, &further, &BTreeSet::new()) };
        }
        let names = view.translator().names(self.kind, view);
        match view.translator().kept_names(self.kind, view) {
            None => sort_and_cut(&names),
            Some(kept) if names.is_empty() => (**kept.runs()).clone(),
            Some(kept) => sort_and_cut(kept.runs().iter().flat_map(Run::names).chain(&names)),
        }
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
            join(&interest.names.iter().map(|of| members(view, *kind, of)).collect::<Vec<_>>())
        } else if kind.is_by_address() {
            let mut lists: Vec<Arc<Runs>> = interest.names.iter().map(|of| members(view, *kind, of)).collect();
            lists.push(view.get(&Unnamed { kind: *kind }));
            join(&lists)
        } else if interest.wildcard {
            let all = view.get(&NamesOf { kind: *kind });
            sort_and_cut(all.iter().flat_map(Run::names).chain(&*interest.names))
        } else {
            named(view, *kind, interest)
        }
    }
}

impl Query for NamesUnknown {
    type Value = BTreeSet<ResourceName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let is_unknown = |of: &&ResourceName| members(view, self.kind, of).is_empty();
        self.interest.names.iter().filter(is_unknown).cloned().collect()
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
        let is_by_address = kind.is_by_address() && !self.interest.wildcard;
        let unknown = is_by_address.then(|| view.get(&NamesUnknown { kind, interest: self.interest.clone() }));
        Collection { kind, resources, unknown }
    }
}

impl CollectionOf {
    /// The names that are wanted.
    pub(super) fn runs(&self, view: &View<'_>) -> Arc<Runs> {
        let Self { kind, interest } = self;
        let kind = *kind;
        if kind == ResourceType::VirtualHost || kind.is_by_address() && !interest.wildcard {
            // The virtual hosts of the route configurations that a client has; what is meant by addresses and services.
            match interest.names.first() {
                Some(of) if interest.names.len() == 1 && kind == ResourceType::VirtualHost => members(view, kind, of),
                Some(_) | None => view.get(&NamesWanted { kind, interest: interest.clone() }),
            }
        } else if interest.wildcard && (interest.names.is_empty() || kind.is_by_address()) {
            view.get(&NamesOf { kind })
        } else if !interest.wildcard && interest.names.len() <= MAX_UNCACHED_NAMES {
            Arc::new(named(view, kind, interest))
        } else {
            view.get(&NamesWanted { kind, interest: interest.clone() })
        }
    }
}

/// What is asked for by name.
fn named(view: &View<'_>, kind: ResourceType, interest: &Interest) -> Runs {
    match view.translator().meant(kind, &interest.names, view) {
        Some(meant) => sort_and_cut(&meant),
        None => cut(&*interest.names),
    }
}

/// All names of lists.
fn join(lists: &[Arc<Runs>]) -> Runs {
    sort_and_cut(lists.iter().flat_map(|runs| runs.iter()).flat_map(Run::names))
}

/// What is meant by a name.
fn members(view: &View<'_>, kind: ResourceType, of: &ResourceName) -> Arc<Runs> {
    view.get(&MembersOf { kind, of: of.clone() })
}

/// The resources of a run of names, those that there are.
fn resources(view: &View<'_>, kind: ResourceType, run: &Run) -> Vec<Arc<Resource>> {
    let one = |name: &ResourceName| (*view.get(&ResourceOf { kind, name: name.clone() })).clone();
    run.names().iter().filter_map(one).collect()
}
