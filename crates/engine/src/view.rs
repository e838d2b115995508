//! The recording view: the only access of computations to the snapshot and the subscriber.

#![expect(
    clippy::result_large_err,
    reason = "errors are rare, and contain the panic to attribute it"
)]

use std::cell::RefCell;
use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::attributes::{AttrDef, AttrValue};
use super::core::{Core, Derived, Lookup};
use super::deps::Dep;
use super::ids::{AttrId, NodeId, QueryId, SubscriberId, ValueId};
use super::inputs::Inputs;
use super::query::{Computes, DerivedValue, Query, Value};
use super::trace::{Failure, Trace, panic_text};
use navarch_tables::hash::KeyedSet;

/// A snapshot as seen by one subscriber. Every read is recorded in the trace of the current
/// computation.
pub struct View<'a, I: Inputs> {
    pub(crate) core: &'a RefCell<Core<I>>,
    pub(crate) snapshot: &'a I::Snapshot,
    pub(crate) environment: &'a I::Environment,
    pub(crate) subscriber: SubscriberId,
}

/// Maximum depth of nested queries. More means a cycle.
const MAX_DEPTH: usize = 100;

/// The failure of a computation from these inputs.
pub(crate) type FailureOf<I> = Failure<<I as Inputs>::Notice>;

impl<I: Inputs> Clone for View<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: Inputs> Copy for View<'_, I> {}

impl<I: Inputs> Debug for View<'_, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("subscriber", &self.subscriber)
            .finish_non_exhaustive()
    }
}

impl<'a, I: Inputs> View<'a, I> {
    /// The value of a query for this subscriber, from the memo if its trace replays.
    ///
    /// # Panics
    /// If the query's computation panics and it has no fallback value.
    pub fn get<Q: Query>(&self, query: &Q) -> Arc<I::Value>
    where
        I: Computes<Q>,
    {
        let id = self.core.borrow_mut().query_id(query);
        match self.node_of(id) {
            Ok(node) => {
                self.record_node(node);
                self.typed::<Q>(node)
            }
            Err(failure) => {
                if let Some(trace) = self.core.borrow_mut().traces.current() {
                    trace.absorb(failure.trace);
                }
                resume_unwind(failure.panic)
            }
        }
    }

    /// The value of a query as an attribute of the subscriber: results are split by the value, not
    /// by its inputs.
    ///
    /// Use it if many subscribers with different attributes have the same value: those then share
    /// all results that depend on it.
    ///
    /// # Panics
    /// As [`View::get`].
    pub fn derived<Q: Query>(&self, query: &Q) -> Arc<I::Value>
    where
        I: Computes<Q, Value: Eq + Hash + Debug>,
    {
        let attr = {
            let mut core = self.core.borrow_mut();
            let id = core.query_id(query);
            core.derived_attr(id, derived_attr_value::<I, Q>)
        };

        let known = self
            .core
            .borrow()
            .subscribers
            .get(&self.subscriber)
            .and_then(|state| state.attr_values.get(&attr).copied());

        let value = known.unwrap_or_else(|| self.derive(attr));
        let mut core = self.core.borrow_mut();
        if let Some(trace) = core.traces.current() {
            trace.read_attribute(attr, value);
        }

        let origin = core
            .subscribers
            .get(&self.subscriber)
            .and_then(|state| state.derived.get(&attr).cloned());
        drop(core);

        match origin {
            Some(Derived::From(node)) => self.typed::<Q>(node),
            Some(Derived::Failed(text)) => resume_unwind(Box::new(text.to_string())),
            None => resume_unwind(Box::new("a query reads a subscriber that has disconnected")),
        }
    }

    /// An attribute of the subscriber; `None` for a computation without one.
    pub fn attribute(&self, attribute: &I::Attribute) -> Option<I::AttributeValue> {
        let mut core = self.core.borrow_mut();
        let id = core.plain_attr(attribute);
        let value = core.attr_value(self.subscriber, id);
        if let (Some(value), Some(trace)) = (value, core.traces.current()) {
            trace.read_attribute(id, value);
        }
        core.subscribers
            .get(&self.subscriber)
            .map(|state| I::attribute(&state.subscriber, attribute))
    }

    /// Records the read of a fact and returns the snapshot to read it from. The caller must read
    /// nothing else there.
    pub fn read(&self, fact: I::Fact) -> &'a I::Snapshot {
        let mut core = self.core.borrow_mut();
        let id = core.facts.id(fact);
        if let Some(trace) = core.traces.current() {
            trace.read(Dep::Fact(id));
        }
        self.snapshot
    }

    /// The snapshot, without the record of a read: only to find the key of a fact that is then
    /// [`read`](Self::read).
    #[must_use]
    pub fn unrecorded(&self) -> &'a I::Snapshot {
        self.snapshot
    }

    /// What computations use beside the inputs.
    #[must_use]
    pub fn environment(&self) -> &'a I::Environment {
        self.environment
    }

    /// Records a remark for the author of an input that is ignored in part: what is wrong, in which
    /// input, and the consequence. It is kept with the result. A text up to its first colon is the
    /// subject: of many remarks on one subject only the first are kept, and the number of others.
    pub fn remark(&self, text: impl Into<Arc<str>>) {
        if let Some(trace) = self.core.borrow_mut().traces.current() {
            trace.remarks.push(text.into());
        }
    }

    /// Records an item that is counted as long as the computation's result is in force.
    pub fn notice(&self, notice: I::Notice) {
        if let Some(trace) = self.core.borrow_mut().traces.current() {
            trace.notices.push(notice);
        }
    }

    /// The value of a node, of its query's type.
    fn typed<Q: Query>(&self, node: NodeId) -> Arc<I::Value>
    where
        I: Computes<Q>,
    {
        self.value(node)
            .downcast::<I::Value>()
            .expect("a query's nodes hold values of its type")
    }

    fn value(&self, node: NodeId) -> Value {
        self.core
            .borrow()
            .memo
            .get(node)
            .expect("a node is kept while it is read")
            .value
            .clone()
    }

    /// Records the read of a node in the current trace.
    fn record_node(&self, id: NodeId) {
        let mut core = self.core.borrow_mut();
        let Some(attrs) = core.memo.get(id).map(|node| node.attrs.clone()) else {
            return;
        };
        if let Some(trace) = core.traces.current() {
            trace.read(Dep::Node(id));
            for (attr, value) in attrs.iter() {
                trace.read_attribute(*attr, *value);
            }
        }
    }

    /// The up-to-date node of a query for this subscriber.
    pub(crate) fn node_of(&self, query: QueryId) -> Result<NodeId, FailureOf<I>> {
        loop {
            let found = self.core.borrow_mut().find(query, self.subscriber);
            match found {
                // It may be a different one after the gates below were settled.
                Lookup::Node(id) if self.settle_gates_below(id) => {}
                Lookup::Node(id) => {
                    let found = self.refresh(id);
                    if found.as_ref().is_ok_and(|found| *found == id) {
                        self.core.borrow_mut().counters.reuse();
                    }
                    return found;
                }
                Lookup::Nothing => return self.compute(query, None),
                Lookup::Derive(attr) => _ = self.derive(attr),
            }
        }
    }

    /// Computes a derived attribute for this subscriber, in a trace of its own, and has the
    /// subscriber watch the node.
    ///
    /// If that fails, the last good value is kept, or the subscriber is marked as failing; the
    /// engine retries at every change.
    pub(crate) fn derive(&self, attr: AttrId) -> ValueId {
        let definition = self.core.borrow().attr(attr).cloned();
        let outcome = match definition {
            Some(AttrDef::Derived { query, convert }) => {
                self.node_of(query).map(|node| (node, convert))
            }
            Some(AttrDef::Plain(_)) | None => Err(Failure::new(
                "a result that is not derived has a key of a derived one",
            )),
        };

        let mut core = self.core.borrow_mut();

        match outcome {
            Ok((node, convert)) => {
                let value = core
                    .memo
                    .get(node)
                    .map_or(AttrValue::Failed, |node| convert(&node.value));
                let value = core.attr_value_id(value);
                core.watch(self.subscriber, attr, node, value);
                value
            }
            Err(failure) => {
                // The facts that were read determine the objects to blame.
                if let Some(trace) = core.traces.current() {
                    let facts = failure
                        .trace
                        .deps
                        .iter()
                        .filter(|dep| matches!(dep, Dep::Fact(_)));
                    facts.for_each(|fact| trace.read(*fact));
                }

                core.keep_attr_value(self.subscriber, attr, failure.text())
            }
        }
    }

    /// Settles the gates that are lower than a node; false if there are none. The node may depend
    /// on them without being marked.
    fn settle_gates_below(&self, id: NodeId) -> bool {
        let height = self
            .core
            .borrow()
            .memo
            .get(id)
            .map_or(0, |node| node.height);
        self.settle_gates(height)
    }

    /// Settles the gates below a height; false if there are none.
    pub(crate) fn settle_gates(&self, below: u16) -> bool {
        let mut is_any = false;
        while !self.core.borrow().gates.is_empty() {
            let Some(gate) = self.core.borrow_mut().next_gate(below) else {
                break;
            };
            is_any = true;
            if let Some(subscriber) = gate.subscriber {
                // If it fails, its dependents are marked, and get the failure themselves.
                drop(
                    View {
                        subscriber,
                        ..*self
                    }
                    .refresh(gate.node),
                );
            }
            self.core.borrow_mut().settled(gate.node);
        }
        is_any
    }

    /// Updates a node for this subscriber, whose attributes match its trace. Returns the node that
    /// matches now: the same one unless the attributes that are read have changed.
    pub(crate) fn refresh(&self, id: NodeId) -> Result<NodeId, FailureOf<I>> {
        let (query, deps, verified_at) = {
            let core = self.core.borrow();
            match core.memo.get(id) {
                Some(node) if node.dirty => (node.query, node.deps.clone(), node.verified_at),
                Some(_) => return Ok(id),
                None => return Err(Failure::new("a query reads a result that was dropped")),
            }
        };

        for (count, dep) in (1..).zip(deps.iter()) {
            if self.has_changed(dep, verified_at) {
                self.core.borrow_mut().counters.visit(count);
                return self.compute(query, Some(id));
            }
        }

        let mut core = self.core.borrow_mut();
        core.counters.visit(deps.len());
        core.close_unchanged(id);
        let revision = core.revision;

        if let Some(node) = core.memo.get_mut(id) {
            node.dirty = false;
            node.verified_at = revision;
        }

        Ok(id)
    }

    /// Whether a dependency's value has changed since `since`.
    fn has_changed(&self, dep: Dep, since: u64) -> bool {
        match dep {
            Dep::Fact(fact) => self.core.borrow().facts.has_changed_since(fact, since),
            Dep::Node(child) => {
                let dirty = match self.core.borrow().memo.get(child) {
                    None => return true,
                    Some(node) => node.dirty,
                };
                if dirty && self.refresh(child).ok() != Some(child) {
                    return true;
                }
                self.core
                    .borrow()
                    .memo
                    .get(child)
                    .is_none_or(|node| node.changed_at > since)
            }
        }
    }

    /// Computes a query, replacing `old` if given.
    fn compute(&self, query: QueryId, old: Option<NodeId>) -> Result<NodeId, FailureOf<I>> {
        let (code, depth, before) = {
            let mut core = self.core.borrow_mut();
            if core.traces.depth() >= MAX_DEPTH {
                return Err(Failure::new("cycle of queries"));
            }
            let depth = core.traces.begin();
            core.counters.compute();
            let before = old
                .and_then(|old| core.memo.get(old))
                .map(|node| node.value.clone());
            (core.queries.get(query), depth, before)
        };

        let result = catch_unwind(AssertUnwindSafe(|| code.compute(before.as_ref(), self)));
        let mut core = self.core.borrow_mut();

        let mut trace = core.traces.end(depth);
        let before = old
            .and_then(|old| core.memo.get(old))
            .map(|node| (node.value.clone(), node.attrs.clone()));
        let previous = before.as_ref().map(|(value, _)| value);
        let (value, fault) = match result {
            Ok(value) => (value, None),
            Err(panic) => match code.fallback(previous) {
                Some(value) => {
                    // The fallback value depends on these attributes: subscribers with other ones
                    // must not get it.
                    trace.prepend_attributes(before.as_ref().map_or(&[], |(_, attrs)| attrs));
                    (value, Some(panic_text(&*panic)))
                }
                None => return Err(Failure { panic, trace }),
            },
        };

        let same_trace = before
            .as_ref()
            .is_some_and(|(_, attrs)| **attrs == *trace.attrs);

        match old {
            Some(old) if same_trace => {
                let same_value = previous.is_some_and(|previous| code.same(previous, &value));
                Self::replace(&mut core, old, value, same_value, trace, fault);
                Ok(old)
            }
            Some(old) => {
                core.drop_node(old);
                Ok(core.store(query, value, trace, fault))
            }
            None => Ok(core.store(query, value, trace, fault)),
        }
    }

    /// Stores the outcome of a computation in its node. If the value is equal the old one stays, so
    /// that dependents stay valid.
    fn replace(
        core: &mut Core<I>,
        id: NodeId,
        value: Value,
        same: bool,
        trace: Trace<I::Notice>,
        fault: Option<Arc<str>>,
    ) {
        let revision = core.revision;
        let remarks = trace.remarks.into_texts();

        if core
            .memo
            .get(id)
            .is_some_and(|node| *node.remarks() != *remarks)
        {
            core.diagnostics.add_remarks(&remarks);
        }
        core.diagnostics.set_notices(id, trace.notices);
        core.counters.visit(trace.deps.len());

        match same {
            true => core.close_unchanged(id),
            false => core.open(id),
        }

        let Some(node) = core.memo.get_mut(id) else {
            return;
        };

        let old = std::mem::replace(&mut node.deps, trace.deps.into_iter().collect());
        let deps = node.deps.clone();
        node.dirty = false;
        node.verified_at = revision;
        node.set_faults(fault, remarks);

        if !same {
            node.value = value;
            node.changed_at = revision;
        }

        if old != deps {
            let known: KeyedSet<Dep> = old.iter().collect();
            core.add_parent(deps.iter().filter(|dep| !known.contains(dep)), id);
            core.raise(id);
        }
    }
}

/// The value of a derived attribute, from that of its query.
fn derived_attr_value<I, Q: Query>(value: &Value) -> AttrValue<I::AttributeValue>
where
    I: Computes<Q, Value: Eq + Hash + Debug>,
{
    match value.clone().downcast::<I::Value>() {
        Ok(value) => AttrValue::Derived(DerivedValue(value)),
        Err(_) => AttrValue::Failed,
    }
}
