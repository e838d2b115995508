//! Large subscriptions are computed in time slices, name by name, before they are answered; other
//! clients are served between the slices.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::collect::{CollectionOf, PieceOf, ResourceOf};
use super::{Engine, Interest, ProxyId};
use crate::name_list::GroupedNames;
use crate::resource::ResourceType;
use navarch_api::names::ResourceName;

/// A subscription that is computed in time slices. The engine holds the results so far: complete
/// pieces, then the resources of the incomplete piece.
pub(super) struct Prepared {
    collection: CollectionOf,
    /// Its names, and the revision at which they were computed.
    names: Option<(u64, Arc<GroupedNames>)>,
    /// The last name that was processed.
    last: Option<ResourceName>,
    /// The number of complete pieces.
    pieces: usize,
}

impl Engine {
    /// As [`Engine::subscribe`] for the last of several unanswered subscriptions, in time slices:
    /// computes at least one resource, and continues while `may_go_on` returns true. Returns true
    /// when the collection is published. Changes in between are allowed: affected resources are
    /// recomputed.
    pub(crate) fn subscribe_in_slices(
        &mut self,
        id: ProxyId,
        resource_type: ResourceType,
        interest: &Interest,
        answers: u32,
        may_go_on: impl FnMut() -> bool,
    ) -> bool {
        if !self.delivery.is_connected(id) {
            return true;
        }

        let begun = self.prepared.remove(&id).filter(|begun| {
            begun.collection.resource_type == resource_type
                && begun.collection.interest == *interest
        });
        let mut prepared = match begun {
            Some(begun) => begun,
            None => {
                self.engine.release(id);
                let collection = CollectionOf {
                    resource_type,
                    interest: interest.clone(),
                };
                if self.engine.is_known(id, &collection) {
                    self.answer(id, &collection, answers);
                    return true;
                }
                Prepared {
                    collection,
                    names: None,
                    last: None,
                    pieces: 0,
                }
            }
        };

        let is_ready = self.prepare(id, &mut prepared, may_go_on);
        if is_ready {
            self.answer(id, &prepared.collection, answers);
        } else {
            self.prepared.insert(id, prepared);
        }

        is_ready
    }

    /// Computes resources of a subscription for one time slice. Returns true when all are computed.
    fn prepare(
        &mut self,
        id: ProxyId,
        prepared: &mut Prepared,
        may_go_on: impl FnMut() -> bool,
    ) -> bool {
        // If computing the names panics, the query panics in the same way and reports it. For a
        // proxy that has disconnected nothing is left to prepare.
        match self.names_of(id, prepared) {
            Some(names) => self.walk(id, &names, prepared, may_go_on),
            None => true,
        }
    }

    /// The names of a subscription. Computing them costs in proportion to their number, so they are
    /// kept between slices. `None` if that panics, or the proxy is not connected.
    fn names_of(&self, id: ProxyId, prepared: &mut Prepared) -> Option<Arc<GroupedNames>> {
        let revision = self.revision();
        if let Some((_, names)) = prepared
            .names
            .as_ref()
            .filter(|(known, _)| *known == revision)
        {
            return Some(names.clone());
        }

        let collection = &prepared.collection;
        let view = self.view(id)?;
        let names = catch_unwind(AssertUnwindSafe(|| collection.names(&view))).ok()?;
        prepared.names = Some((revision, names.clone()));
        Some(names)
    }

    /// Continues with the first unprocessed name. Returns true at the end.
    fn walk(
        &mut self,
        id: ProxyId,
        names: &GroupedNames,
        prepared: &mut Prepared,
        mut may_go_on: impl FnMut() -> bool,
    ) -> bool {
        let resource_type = prepared.collection.resource_type;
        let is_on_demand = prepared.collection.is_on_demand();
        let last = prepared.last.clone();
        let is_done = |name: &ResourceName| last.as_ref().is_some_and(|last| name <= last);

        let chunks = names.chunks_from(|last| !is_done(last));

        let mut is_first = true;
        for chunk in chunks {
            for name in chunk
                .items()
                .iter()
                .skip(chunk.items().partition_point(is_done))
            {
                if !is_first && !may_go_on() {
                    return false;
                }
                is_first = false;
                let resource = ResourceOf {
                    resource_type,
                    name: name.clone(),
                    is_on_demand,
                };
                self.engine.hold(id, &resource);
                prepared.last = Some(name.clone());
            }

            // A single chunk has no piece of its own.
            if names.only_chunk().is_none() {
                let piece = PieceOf {
                    resource_type,
                    chunk: chunk.clone(),
                    is_on_demand,
                };
                self.engine.hold_instead(id, prepared.pieces, &piece);
                prepared.pieces = self.engine.held(id);
            }
        }

        true
    }
}
