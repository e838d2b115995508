//! The queries under every subscription: names, one resource, a chunk of resources, all resources
//! of an interest.
//!
//! ```text
//! names ─▶ chunks ─┬─▶ piece ─┐
//!                  ├─▶ piece ─┼─▶ collection
//! resources ───────┴─▶ piece ─┘
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::chunked_list::{Chunk, cut, sort_and_cut, update};
use crate::name_list::NameChunks;
use crate::query::Query;
use crate::resource::resources::Resources;
use crate::resource::{Collection, Resource, ResourceType};
use crate::subscription::Interest;
use crate::view::View;
use navarch_api::names::ResourceName;

/// Maximum number of names in a subscription that are cut into chunks again with every change. For
/// more, the chunks are kept.
const MAX_UNCACHED_NAMES: usize = 32;

/// All resources of one type for one interest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CollectionOf {
    pub(super) kind: ResourceType,
    pub(super) interest: Interest,
}

/// One resource by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ResourceOf {
    pub(super) kind: ResourceType,
    pub(super) name: ResourceName,
    /// Whether it is for a client that requests by address: [`CollectionOf::is_on_demand`].
    pub(super) is_on_demand: bool,
}

/// The names of a wildcard subscription.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesOf {
    kind: ResourceType,
}

/// The names that another name refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MembersOf {
    kind: ResourceType,
    of: ResourceName,
}

/// The names that a proxy gets in addition to those that it requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unnamed {
    kind: ResourceType,
}

/// The names of an interest that consists of several lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesWanted {
    kind: ResourceType,
    interest: Interest,
}

/// Requested names without a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesUnknown {
    kind: ResourceType,
    interest: Interest,
}

/// The existing resources of a chunk of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PieceOf {
    pub(super) kind: ResourceType,
    pub(super) chunk: Chunk<ResourceName>,
    /// As in [`ResourceOf`].
    pub(super) is_on_demand: bool,
}

impl Query for MembersOf {
    type Value = NameChunks;

    fn compute(&self, view: &View<'_>) -> NameChunks {
        sort_and_cut(&view.translator().members(self.kind, &self.of, view))
    }

    fn fallback(&self, previous: Option<&NameChunks>) -> Option<NameChunks> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for Unnamed {
    type Value = NameChunks;

    fn compute(&self, view: &View<'_>) -> NameChunks {
        sort_and_cut(&view.translator().unnamed(self.kind, view))
    }

    fn fallback(&self, previous: Option<&NameChunks>) -> Option<NameChunks> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesOf {
    type Value = NameChunks;

    fn compute(&self, view: &View<'_>) -> NameChunks {
        if self.kind.is_by_address() {
            // There are too many to list again with every change; the translator adds a few.
            let known = view.address_names().chunks();
            let further: BTreeSet<ResourceName> = view
                .translator()
                .names(self.kind, view)
                .into_iter()
                .collect();
            return if further.is_empty() {
                (**known).clone()
            } else {
                update(known, &further, &BTreeSet::new())
            };
        }

        let names = view.translator().names(self.kind, view);

        match view.translator().further_names(self.kind, view) {
            None => sort_and_cut(&names),
            Some(kept) if names.is_empty() => (**kept.chunks()).clone(),
            Some(kept) => sort_and_cut(kept.chunks().iter().flat_map(Chunk::items).chain(&names)),
        }
    }

    fn fallback(&self, previous: Option<&NameChunks>) -> Option<NameChunks> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesWanted {
    type Value = NameChunks;

    fn compute(&self, view: &View<'_>) -> NameChunks {
        let Self { kind, interest } = self;
        if *kind == ResourceType::VirtualHost {
            join(
                &interest
                    .names
                    .iter()
                    .map(|of| members(view, *kind, of))
                    .collect::<Vec<_>>(),
            )
        } else if kind.is_by_address() {
            let mut lists: Vec<Arc<NameChunks>> = interest
                .names
                .iter()
                .map(|of| members(view, *kind, of))
                .collect();
            lists.push(view.get(&Unnamed { kind: *kind }));
            join(&lists)
        } else if interest.wildcard {
            let all = view.get(&NamesOf { kind: *kind });
            sort_and_cut(all.iter().flat_map(Chunk::items).chain(&*interest.names))
        } else {
            named(view, *kind, interest)
        }
    }
}

impl Query for NamesUnknown {
    type Value = BTreeSet<ResourceName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let is_unknown = |of: &&ResourceName| members(view, self.kind, of).is_empty();
        self.interest
            .names
            .iter()
            .filter(is_unknown)
            .cloned()
            .collect()
    }
}

impl Query for ResourceOf {
    type Value = Option<Arc<Resource>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let body = match self.is_on_demand {
            true => view
                .translator()
                .resource_on_demand(self.kind, &self.name, view),
            false => view.translator().resource(self.kind, &self.name, view),
        }?;
        Some(Arc::new(Resource::new(self.kind, self.name.clone(), body)))
    }

    fn fallback(&self, previous: Option<&Self::Value>) -> Option<Self::Value> {
        Some(previous.cloned().flatten())
    }
}

impl Query for PieceOf {
    type Value = Vec<Arc<Resource>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        resources(view, self.kind, &self.chunk, self.is_on_demand)
    }
}

impl Query for CollectionOf {
    type Value = Collection;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let kind = self.kind;
        let is_on_demand = self.is_on_demand();
        let chunks = self.chunks(view);
        let resources = match chunks.as_slice() {
            // A single chunk needs no pieces.
            [only] => resources(view, kind, only, is_on_demand)
                .into_iter()
                .collect(),
            chunks => {
                let piece = |chunk: &Chunk<ResourceName>| {
                    view.get(&PieceOf {
                        kind,
                        chunk: chunk.clone(),
                        is_on_demand,
                    })
                };
                Resources::of_pieces(chunks.iter().map(piece))
            }
        };

        let is_by_address = kind.is_by_address() && !self.interest.wildcard;
        let unknown = is_by_address.then(|| {
            view.get(&NamesUnknown {
                kind,
                interest: self.interest.clone(),
            })
        });

        Collection {
            kind,
            resources,
            unknown,
        }
    }
}

impl CollectionOf {
    /// Whether its resources may differ from those of a wildcard client. Only `Workload` can
    /// differ: ztunnel gets the same `Address` either way, and shares it.
    pub(super) fn is_on_demand(&self) -> bool {
        self.kind == ResourceType::Workload && !self.interest.wildcard
    }

    /// The names of the interest.
    pub(super) fn chunks(&self, view: &View<'_>) -> Arc<NameChunks> {
        let Self { kind, interest } = self;
        let kind = *kind;
        if kind == ResourceType::VirtualHost || kind.is_by_address() && !interest.wildcard {
            // The virtual hosts of requested route configurations; the resources of requested
            // addresses and services.
            match interest.names.first() {
                Some(of) if interest.names.len() == 1 && kind == ResourceType::VirtualHost => {
                    members(view, kind, of)
                }
                Some(_) | None => view.get(&NamesWanted {
                    kind,
                    interest: interest.clone(),
                }),
            }
        } else if interest.wildcard && (interest.names.is_empty() || kind.is_by_address()) {
            view.get(&NamesOf { kind })
        } else if !interest.wildcard && interest.names.len() <= MAX_UNCACHED_NAMES {
            Arc::new(named(view, kind, interest))
        } else {
            view.get(&NamesWanted {
                kind,
                interest: interest.clone(),
            })
        }
    }
}

/// The requested names.
fn named(view: &View<'_>, kind: ResourceType, interest: &Interest) -> NameChunks {
    match view
        .translator()
        .referenced_names(kind, &interest.names, view)
    {
        Some(names) => sort_and_cut(&names),
        None => cut(interest.names.iter().cloned()),
    }
}

/// The union of the lists.
fn join(lists: &[Arc<NameChunks>]) -> NameChunks {
    sort_and_cut(
        lists
            .iter()
            .flat_map(|chunks| chunks.iter())
            .flat_map(Chunk::items),
    )
}

/// The names that a name refers to.
fn members(view: &View<'_>, kind: ResourceType, of: &ResourceName) -> Arc<NameChunks> {
    view.get(&MembersOf {
        kind,
        of: of.clone(),
    })
}

/// The existing resources of a chunk of names.
fn resources(
    view: &View<'_>,
    kind: ResourceType,
    chunk: &Chunk<ResourceName>,
    is_on_demand: bool,
) -> Vec<Arc<Resource>> {
    let one = |name: &ResourceName| {
        (*view.get(&ResourceOf {
            kind,
            name: name.clone(),
            is_on_demand,
        }))
        .clone()
    };
    chunk.items().iter().filter_map(one).collect()
}
