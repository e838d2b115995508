//! The queries under every subscription: names, one resource, a chunk of resources, a group of
//! chunks, all resources of an interest.
//!
//! ```text
//! names ─▶ chunks ─┬─▶ piece ─┬─▶ piece group ─┐
//!                  ├─▶ piece ─┘                ├─▶ collection
//! resources ───────┴─▶ piece ───▶ piece group ─┘
//! ```
//!
//! A changed resource recomputes its piece, the group of it and the collection, which looks at each
//! other group once, but not at the pieces and resources in them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::chunked_list::Chunk;
use crate::grouped_list::Group;
use crate::name_list::GroupedNames;
use crate::query::Query;
use crate::resource::resources::{Piece, PieceGroup, Resources};
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
    pub(super) resource_type: ResourceType,
    pub(super) interest: Interest,
}

/// One resource by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ResourceOf {
    pub(super) resource_type: ResourceType,
    pub(super) name: ResourceName,
    /// Whether it is for a client that requests by address: [`CollectionOf::is_on_demand`].
    pub(super) is_on_demand: bool,
}

/// The names of a wildcard subscription.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesOf {
    resource_type: ResourceType,
}

/// The names that another name refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MembersOf {
    resource_type: ResourceType,
    of: ResourceName,
}

/// The names that a proxy gets in addition to those that it requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unnamed {
    resource_type: ResourceType,
}

/// The names of an interest that consists of several lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesWanted {
    resource_type: ResourceType,
    interest: Interest,
}

/// Requested names without a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesUnknown {
    resource_type: ResourceType,
    interest: Interest,
}

/// The existing resources of a chunk of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PieceOf {
    pub(super) resource_type: ResourceType,
    pub(super) chunk: Chunk<ResourceName>,
    /// As in [`ResourceOf`].
    pub(super) is_on_demand: bool,
}

/// The pieces of a group of chunks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupOf {
    resource_type: ResourceType,
    chunks: Group<ResourceName>,
    /// As in [`ResourceOf`].
    is_on_demand: bool,
}

impl Query for MembersOf {
    type Value = GroupedNames;

    fn compute(&self, view: &View<'_>) -> GroupedNames {
        GroupedNames::sort(
            &view
                .translator()
                .members(self.resource_type, &self.of, view),
        )
    }

    fn fallback(&self, previous: Option<&GroupedNames>) -> Option<GroupedNames> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for Unnamed {
    type Value = GroupedNames;

    fn compute(&self, view: &View<'_>) -> GroupedNames {
        GroupedNames::sort(&view.translator().unnamed(self.resource_type, view))
    }

    fn fallback(&self, previous: Option<&GroupedNames>) -> Option<GroupedNames> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesOf {
    type Value = GroupedNames;

    fn compute(&self, view: &View<'_>) -> GroupedNames {
        if self.resource_type.is_by_address() {
            // There are too many to list again with every change; the translator adds a few.
            let known = view.address_names().groups();
            let further: BTreeSet<ResourceName> = view
                .translator()
                .names(self.resource_type, view)
                .into_iter()
                .collect();
            return if further.is_empty() {
                (**known).clone()
            } else {
                known.update(&further, &BTreeSet::new())
            };
        }

        let names = view.translator().names(self.resource_type, view);

        match view.translator().further_names(self.resource_type, view) {
            None => GroupedNames::sort(&names),
            Some(kept) if names.is_empty() => (**kept.groups()).clone(),
            Some(kept) => GroupedNames::sort(kept.groups().items().chain(&names)),
        }
    }

    fn fallback(&self, previous: Option<&GroupedNames>) -> Option<GroupedNames> {
        Some(previous.cloned().unwrap_or_default())
    }
}

impl Query for NamesWanted {
    type Value = GroupedNames;

    fn compute(&self, view: &View<'_>) -> GroupedNames {
        let resource_type = self.resource_type;
        let interest = &self.interest;

        if resource_type == ResourceType::VirtualHost {
            join(
                &interest
                    .names
                    .iter()
                    .map(|of| members(view, resource_type, of))
                    .collect::<Vec<_>>(),
            )
        } else if resource_type.is_by_address() {
            let mut lists: Vec<Arc<GroupedNames>> = interest
                .names
                .iter()
                .map(|of| members(view, resource_type, of))
                .collect();
            lists.push(view.get(&Unnamed { resource_type }));
            join(&lists)
        } else if interest.wildcard {
            let all = view.get(&NamesOf { resource_type });
            GroupedNames::sort(all.items().chain(&*interest.names))
        } else {
            named(view, resource_type, interest)
        }
    }
}

impl Query for NamesUnknown {
    type Value = BTreeSet<ResourceName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let is_unknown = |of: &&ResourceName| members(view, self.resource_type, of).is_empty();
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
                .resource_on_demand(self.resource_type, &self.name, view),
            false => view
                .translator()
                .resource(self.resource_type, &self.name, view),
        }?;
        Some(Arc::new(Resource::new(
            self.resource_type,
            self.name.clone(),
            body,
        )))
    }

    fn fallback(&self, previous: Option<&Self::Value>) -> Option<Self::Value> {
        Some(previous.cloned().flatten())
    }
}

impl Query for PieceOf {
    type Value = Vec<Arc<Resource>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        resources(view, self.resource_type, &self.chunk, self.is_on_demand)
    }
}

impl Query for GroupOf {
    type Value = PieceGroup;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        PieceGroup::new(self.pieces(view))
    }
}

impl GroupOf {
    /// The pieces of the chunks, in their order.
    fn pieces(&self, view: &View<'_>) -> impl Iterator<Item = Piece> {
        self.chunks.items().iter().map(|chunk| {
            view.get(&PieceOf {
                resource_type: self.resource_type,
                chunk: chunk.clone(),
                is_on_demand: self.is_on_demand,
            })
        })
    }
}

impl Query for CollectionOf {
    type Value = Collection;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let resource_type = self.resource_type;
        let is_on_demand = self.is_on_demand();
        let names = self.names(view);

        let group = |chunks: &Group<ResourceName>| GroupOf {
            resource_type,
            chunks: chunks.clone(),
            is_on_demand,
        };
        let resources = match (names.only_chunk(), names.groups()) {
            // A single chunk needs no pieces, and a single group no result of its own.
            (Some(only), _) => resources(view, resource_type, only, is_on_demand)
                .into_iter()
                .collect(),
            (None, [only]) => Resources::of_pieces(group(only).pieces(view)),
            (None, groups) => {
                Resources::of_groups(groups.iter().map(|chunks| view.get(&group(chunks))))
            }
        };

        let is_by_address = resource_type.is_by_address() && !self.interest.wildcard;
        let unknown = is_by_address.then(|| {
            view.get(&NamesUnknown {
                resource_type,
                interest: self.interest.clone(),
            })
        });

        Collection {
            resource_type,
            resources,
            unknown,
        }
    }
}

impl CollectionOf {
    /// Whether its resources may differ from those of a wildcard client. Only `Workload` can
    /// differ: ztunnel gets the same `Address` either way, and shares it.
    pub(super) fn is_on_demand(&self) -> bool {
        self.resource_type == ResourceType::Workload && !self.interest.wildcard
    }

    /// The names of the interest.
    pub(super) fn names(&self, view: &View<'_>) -> Arc<GroupedNames> {
        let resource_type = self.resource_type;
        let interest = &self.interest;

        if resource_type == ResourceType::VirtualHost
            || resource_type.is_by_address() && !interest.wildcard
        {
            // The virtual hosts of requested route configurations; the resources of requested
            // addresses and services.
            match interest.names.first() {
                Some(of)
                    if interest.names.len() == 1 && resource_type == ResourceType::VirtualHost =>
                {
                    members(view, resource_type, of)
                }
                Some(_) | None => view.get(&NamesWanted {
                    resource_type,
                    interest: interest.clone(),
                }),
            }
        } else if interest.wildcard && (interest.names.is_empty() || resource_type.is_by_address())
        {
            view.get(&NamesOf { resource_type })
        } else if !interest.wildcard && interest.names.len() <= MAX_UNCACHED_NAMES {
            Arc::new(named(view, resource_type, interest))
        } else {
            view.get(&NamesWanted {
                resource_type,
                interest: interest.clone(),
            })
        }
    }
}

/// The requested names.
fn named(view: &View<'_>, resource_type: ResourceType, interest: &Interest) -> GroupedNames {
    match view
        .translator()
        .referenced_names(resource_type, &interest.names, view)
    {
        Some(names) => GroupedNames::sort(&names),
        None => GroupedNames::of_sorted(interest.names.iter().cloned()),
    }
}

/// The union of the lists.
fn join(lists: &[Arc<GroupedNames>]) -> GroupedNames {
    GroupedNames::sort(lists.iter().flat_map(|names| names.items()))
}

/// The names that a name refers to.
fn members(view: &View<'_>, resource_type: ResourceType, of: &ResourceName) -> Arc<GroupedNames> {
    view.get(&MembersOf {
        resource_type,
        of: of.clone(),
    })
}

/// The existing resources of a chunk of names.
fn resources(
    view: &View<'_>,
    resource_type: ResourceType,
    chunk: &Chunk<ResourceName>,
    is_on_demand: bool,
) -> Vec<Arc<Resource>> {
    let one = |name: &ResourceName| {
        (*view.get(&ResourceOf {
            resource_type,
            name: name.clone(),
            is_on_demand,
        }))
        .clone()
    };
    chunk.items().iter().filter_map(one).collect()
}
