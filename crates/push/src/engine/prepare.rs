//! Large subscriptions are worked off in slices: what they will show is worked out name by name before they are answered, and
//! between the slices others are served.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::collect::{CollectionOf, PieceOf, ResourceOf};
use super::runs::Runs;
use super::{Engine, Interest, ProxyId};
use crate::core::{Lookup, Prepared};
use crate::memo::{NodeId, QueryId};
use crate::query::Query;
use crate::resource::ResourceType;
use navarch_api::names::ResourceName;

impl Engine {
    /// As [`Engine::subscribe`], as an answer to several subscriptions of which this is the last, in slices: works out one
    /// resource at least, and goes on as long as `may_go_on` says. True when all of it is there and published. Changes in
    /// between do no harm: what they reach is worked out again.
    pub(crate) fn subscribe_in_slices(
        &mut self,
        id: ProxyId,
        kind: ResourceType,
        interest: &Interest,
        answers: u32,
        may_go_on: impl FnMut() -> bool,
    ) -> bool {
        let Some(state) = self.core.get_mut().proxies.get_mut(&id.0) else { return true };
        let begun = state.prepared.take().filter(|begun| begun.kind == kind && begun.interest == *interest);
        let prepared = match begun {
            Some(begun) => begun,
            None => {
                let query = self.core.get_mut().query_id(&CollectionOf { kind, interest: interest.clone() });
                if self.is_known(id, query) {
                    self.answer(id, kind, query, answers);
                    return true;
                }
                Prepared::new(kind, interest.clone())
            }
        };
        let is_ready = self.prepare(id, prepared, may_go_on);
        if is_ready {
            let query = self.core.get_mut().query_id(&CollectionOf { kind, interest: interest.clone() });
            self.answer(id, kind, query, answers);
        }
        is_ready
    }

    /// Whether another proxy that gives the same answers was shown the same.
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

    /// Works out what a proxy will show of a type, for a while. True when all of it is there.
    fn prepare(&mut self, id: ProxyId, mut prepared: Prepared, may_go_on: impl FnMut() -> bool) -> bool {
        let kind = prepared.kind;
        // Where the names cannot be had, the answer meets the same panic and says so.
        let Some(runs) = self.names_of(id, kind, &mut prepared) else { return true };
        let is_done = self.walk(id, kind, &runs, &mut prepared, may_go_on);
        if let Some(state) = self.core.get_mut().proxies.get_mut(&id.0) {
            state.prepared = Some(prepared);
        }
        is_done
    }

    /// The names of a subscription. To find them costs as much as there are, so they are kept.
    fn names_of(&self, id: ProxyId, kind: ResourceType, prepared: &mut Prepared) -> Option<Arc<Runs>> {
        let revision = self.revision();
        if let Some((_, runs)) = prepared.names.as_ref().filter(|(known, _)| *known == revision) {
            return Some(runs.clone());
        }
        let collection = CollectionOf { kind, interest: prepared.interest.clone() };
        let runs = catch_unwind(AssertUnwindSafe(|| collection.runs(&self.view(id.0)))).ok()?;
        prepared.names = Some((revision, runs.clone()));
        Some(runs)
    }

    /// Goes on with the first name that was not looked at. True at the end.
    fn walk(
        &self,
        id: ProxyId,
        kind: ResourceType,
        runs: &Runs,
        prepared: &mut Prepared,
        mut may_go_on: impl FnMut() -> bool,
    ) -> bool {
        let last = prepared.last.clone();
        let is_done = |name: &ResourceName| last.as_ref().is_some_and(|last| name <= last);
        let mut is_first = true;
        for run in runs.iter().skip(runs.partition_point(|run| run.names().last().is_some_and(is_done))) {
            for name in run.names().iter().skip(run.names().partition_point(is_done)) {
                if !is_first && !may_go_on() {
                    return false;
                }
                is_first = false;
                prepared.resources.extend(self.node_for(id, &ResourceOf { kind, name: name.clone() }));
                prepared.last = Some(name.clone());
            }
            // A single run is no piece of its own.
            if runs.len() > 1 {
                prepared.pieces.extend(self.node_for(id, &PieceOf { kind, run: run.clone() }));
                prepared.resources.clear();
            }
        }
        true
    }

    /// The result of a query for a proxy, brought up to date, which stays while it is among what is prepared.
    fn node_for(&self, id: ProxyId, query: &impl Query) -> Option<NodeId> {
        let query = self.core.borrow_mut().query_id(query);
        let node = self.view(id.0).node_of(query).ok()?;
        self.core.borrow_mut().touch(node);
        Some(node)
    }
}
