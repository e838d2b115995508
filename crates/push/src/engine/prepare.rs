//! Large subscriptions are computed in time slices, name by name, before they are answered; other
//! clients are served between the slices.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::collect::{CollectionOf, PieceOf, ResourceOf};
use super::{Engine, Interest, ProxyId};
use crate::chunked_list::Chunk;
use crate::core::{Lookup, Prepared};
use crate::ids::{NodeId, QueryId};
use crate::name_list::NameChunks;
use crate::query::Query;
use crate::resource::ResourceType;
use navarch_api::names::ResourceName;

impl Engine {
    /// As [`Engine::subscribe`] for the last of several unanswered subscriptions, in time slices:
    /// computes at least one resource, and continues while `may_go_on` returns true. Returns true
    /// when the collection is published. Changes in between are allowed: affected resources are
    /// recomputed.
    pub(crate) fn subscribe_in_slices(
        &mut self,
        id: ProxyId,
        kind: ResourceType,
        interest: &Interest,
        answers: u32,
        may_go_on: impl FnMut() -> bool,
    ) -> bool {
        let Some(state) = self.core.get_mut().proxies.get_mut(&id.0) else {
            return true;
        };

        let begun = state
            .prepared
            .take()
            .filter(|begun| begun.kind == kind && begun.interest == *interest);
        let prepared = match begun {
            Some(begun) => begun,
            None => {
                let query = self.core.get_mut().query_id(&CollectionOf {
                    kind,
                    interest: interest.clone(),
                });
                if self.is_known(id, query) {
                    self.answer(id, kind, query, answers);
                    return true;
                }
                Prepared::new(kind, interest.clone())
            }
        };

        let is_ready = self.prepare(id, prepared, may_go_on);
        if is_ready {
            let query = self.core.get_mut().query_id(&CollectionOf {
                kind,
                interest: interest.clone(),
            });
            self.answer(id, kind, query, answers);
        }

        is_ready
    }

    /// Whether a proxy with the same answers has the same subscription.
    fn is_known(&self, id: ProxyId, query: QueryId) -> bool {
        loop {
            let found = self.core.borrow_mut().find(query, id.0);
            match found {
                Lookup::Node(_) => return true,
                Lookup::Nothing => return false,
                Lookup::Derive(attr) => _ = self.view(id.0).derive(attr),
            }
        }
    }

    /// Computes resources of a subscription for one time slice. Returns true when all are computed.
    fn prepare(
        &mut self,
        id: ProxyId,
        mut prepared: Prepared,
        may_go_on: impl FnMut() -> bool,
    ) -> bool {
        let kind = prepared.kind;
        // If computing the names panics, the query panics in the same way and reports it.
        let Some(chunks) = self.names_of(id, kind, &mut prepared) else {
            return true;
        };
        let is_done = self.walk(id, &chunks, &mut prepared, may_go_on);
        if let Some(state) = self.core.get_mut().proxies.get_mut(&id.0) {
            state.prepared = Some(prepared);
        }
        is_done
    }

    /// The names of a subscription. Computing them costs in proportion to their number, so they are
    /// kept between slices.
    fn names_of(
        &self,
        id: ProxyId,
        kind: ResourceType,
        prepared: &mut Prepared,
    ) -> Option<Arc<NameChunks>> {
        let revision = self.revision();
        if let Some((_, chunks)) = prepared
            .names
            .as_ref()
            .filter(|(known, _)| *known == revision)
        {
            return Some(chunks.clone());
        }
        let collection = CollectionOf {
            kind,
            interest: prepared.interest.clone(),
        };
        let chunks = catch_unwind(AssertUnwindSafe(|| collection.chunks(&self.view(id.0)))).ok()?;
        prepared.names = Some((revision, chunks.clone()));
        Some(chunks)
    }

    /// Continues with the first unprocessed name. Returns true at the end.
    fn walk(
        &self,
        id: ProxyId,
        chunks: &[Chunk<ResourceName>],
        prepared: &mut Prepared,
        mut may_go_on: impl FnMut() -> bool,
    ) -> bool {
        let kind = prepared.kind;
        let is_on_demand = CollectionOf {
            kind,
            interest: prepared.interest.clone(),
        }
        .is_on_demand();
        let last = prepared.last.clone();
        let is_done = |name: &ResourceName| last.as_ref().is_some_and(|last| name <= last);

        let mut is_first = true;
        for chunk in chunks
            .iter()
            .skip(chunks.partition_point(|chunk| chunk.items().last().is_some_and(is_done)))
        {
            for name in chunk
                .items()
                .iter()
                .skip(chunk.items().partition_point(is_done))
            {
                if !is_first && !may_go_on() {
                    return false;
                }
                is_first = false;
                prepared.resources.extend(self.node_for(
                    id,
                    &ResourceOf {
                        kind,
                        name: name.clone(),
                        is_on_demand,
                    },
                ));
                prepared.last = Some(name.clone());
            }
            // A single chunk has no piece of its own.
            if chunks.len() > 1 {
                prepared.pieces.extend(self.node_for(
                    id,
                    &PieceOf {
                        kind,
                        chunk: chunk.clone(),
                        is_on_demand,
                    },
                ));
                prepared.resources.clear();
            }
        }

        true
    }

    /// The up-to-date node of a query for a proxy. Sweeps keep it while it is part of a prepared
    /// subscription.
    fn node_for(&self, id: ProxyId, query: &impl Query) -> Option<NodeId> {
        let query = self.core.borrow_mut().query_id(query);
        let node = self.view(id.0).node_of(query).ok()?;
        self.core.borrow_mut().touch(node);
        Some(node)
    }
}
