//! The recording view: the only way for a translator to read the snapshot and the proxy.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::attr::{Attr, AttrDerived, AttrValue};
use super::context::PushContext;
use super::core::{Core, Found};
use super::fact::FactKey;
use super::memo::{AttrDef, AttrId, Dep, Frame, NodeId, QueryId, Value, ValueId};
use super::query::{DerivedValue, ProxyQuery, Query};
use super::resource::ResourceType;
use crate::api::names::ResourceName;

/// Makes resources: the one thing that the engine asks of `envoy/`.
pub trait Translator: Send + Sync {
    /// The names of all resources of a type that the view's proxy gets unasked.
    fn names(&self, kind: ResourceType, view: &View<'_>) -> Vec<ResourceName>;

    /// The encoded resource of this name for the view's proxy, `None` if there is none.
    fn resource(&self, kind: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<bytes::Bytes>;
}

/// One snapshot as seen for one proxy. Every read is recorded in the trace of the computation under way.
pub struct View<'a> {
    /// The tables that record.
    pub(super) core: &'a RefCell<Core>,
    /// What is read.
    pub(super) context: &'a PushContext,
    /// Who makes resources of it.
    pub(super) translator: &'a dyn Translator,
    /// Whom it is for.
    pub(super) proxy: u64,
}

/// How deep queries may rest on queries. Translators need about ten; more means a cycle.
const MAX_DEPTH: usize = 100;

/// What a panic left behind.
type Panic = Box<dyn std::any::Any + Send>;

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl View<'_> {
    /// The value of a query for this proxy, from the memo where its trace replays.
    ///
    /// # Panics
    /// When the query's computation panics and it offers no stand-in.
    pub fn get<Q: Query>(&self, query: &Q) -> Arc<Q::Value> {
        let id = self.core.borrow_mut().query_id(query);
        match self.node_of(id) {
            Ok(node) => {
                self.record_node(node);
                self.typed::<Q>(node)
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    /// The value of a proxy query, recorded as an attribute: only its value, not what it was found from, tells proxies apart.
    ///
    /// # Panics
    /// As [`View::get`].
    pub fn derived<Q: ProxyQuery>(&self, query: &Q) -> Arc<Q::Value> {
        let attr = {
            let mut core = self.core.borrow_mut();
            let id = core.query_id(query);
            core.derived_attr(id, answer_of::<Q>)
        };
        let known = self.core.borrow().proxies.get(&self.proxy).and_then(|state| state.answers.get(&attr).copied());
        let value = match known {
            Some(value) => value,
            None => match self.derive(attr) {
                Ok(value) => value,
                Err(panic) => resume_unwind(panic),
            },
        };
        let mut core = self.core.borrow_mut();
        if let Some(frame) = core.frames.last_mut() {
            frame.ask(attr, value);
        }
        let node = core
            .proxies
            .get(&self.proxy)
            .and_then(|state| state.derived.iter().find(|(derived, _)| *derived == attr).map(|(_, node)| *node));
        drop(core);
        self.typed::<Q>(node.expect("an answered derived question has its node"))
    }

    /// A plain attribute of the proxy.
    pub(super) fn ask(&self, attr: &Attr) -> AttrValue {
        let mut core = self.core.borrow_mut();
        let id = core.plain_attr(attr);
        let answered = core.answer(self.proxy, id);
        if let (Some(value), Some(frame)) = (answered, core.frames.last_mut()) {
            frame.ask(id, value);
        }
        core.proxies.get(&self.proxy).map_or(AttrValue::Absent, |state| attr.of(&state.proxy))
    }

    /// Notes the read of a fact and gives the snapshot to read it from.
    pub(super) fn read(&self, fact: FactKey) -> &PushContext {
        let mut core = self.core.borrow_mut();
        let id = core.fact_id(fact);
        if let Some(frame) = core.frames.last_mut() {
            frame.read(Dep::Fact(id));
        }
        self.context
    }

    /// The translator, for the engine's own queries.
    pub(super) fn translator(&self) -> &dyn Translator {
        self.translator
    }

    /// The value of a node, of its query's type.
    fn typed<Q: Query>(&self, node: NodeId) -> Arc<Q::Value> {
        let value = self.core.borrow().nodes.get(&node).map(|node| node.value.clone());
        value.and_then(|value| value.downcast::<Q::Value>().ok()).expect("a query's nodes hold values of its type")
    }

    /// Notes in the trace under way that a node was read.
    fn record_node(&self, id: NodeId) {
        let mut core = self.core.borrow_mut();
        let Some(attrs) = core.nodes.get(&id).map(|node| node.attrs.clone()) else { return };
        if let Some(frame) = core.frames.last_mut() {
            frame.read(Dep::Node(id));
            for (attr, value) in attrs.iter() {
                frame.ask(*attr, *value);
            }
        }
    }

    /// The node that answers a query for this proxy, brought up to date.
    pub(super) fn node_of(&self, query: QueryId) -> Result<NodeId, Panic> {
        loop {
            let found = self.core.borrow_mut().find(query, self.proxy);
            match found {
                Found::Node(id) => return self.refresh(id),
                Found::Nothing => return self.compute(query, None),
                Found::Derive(attr) => {
                    self.derive(attr)?;
                }
            }
        }
    }

    /// Answers a derived question for this proxy, in a trace of its own, and has the proxy watch the answer's node.
    pub(super) fn derive(&self, attr: AttrId) -> Result<ValueId, Panic> {
        let definition = self.core.borrow().attr(attr);
        let Some(AttrDef::Derived { query, answer }) = definition else {
            return Err(Box::new("a plain question is never derived"));
        };
        let node = self.node_of(query)?;
        let mut core = self.core.borrow_mut();
        let value = core.nodes.get(&node).map(|node| answer(&node.value)).unwrap_or(AttrValue::Absent);
        let value = core.value_id(value);
        let watcher = (self.proxy, attr);
        let mut left = None;
        if let Some(state) = core.proxies.get_mut(&self.proxy) {
            state.answers.insert(attr, value);
            match state.derived.iter_mut().find(|(known, _)| *known == attr) {
                Some((_, known)) if *known == node => {}
                Some((_, known)) => left = Some(std::mem::replace(known, node)),
                None => state.derived.push((attr, node)),
            }
        }
        if let Some(left) = left.and_then(|left| core.nodes.get_mut(&left)) {
            left.watchers.retain(|known| *known != watcher);
        }
        if let Some(node) = core.nodes.get_mut(&node)
            && !node.watchers.contains(&watcher)
        {
            node.watchers.push(watcher);
        }
        Ok(value)
    }

    /// Brings a node up to date for this proxy, which its trace fits. Gives the node that answers now: the same one unless
    /// what is asked of the proxy has changed.
    pub(super) fn refresh(&self, id: NodeId) -> Result<NodeId, Panic> {
        let (query, deps, verified_at) = {
            let core = self.core.borrow();
            match core.nodes.get(&id) {
                Some(node) if node.dirty => (node.query, node.deps.clone(), node.verified_at),
                Some(_) => return Ok(id),
                None => return Err(Box::new("a forgotten result was asked for")),
            }
        };
        for dep in deps.iter() {
            if self.has_changed(*dep, verified_at) {
                return self.compute(query, Some(id));
            }
        }
        let mut core = self.core.borrow_mut();
        let revision = core.revision;
        if let Some(node) = core.nodes.get_mut(&id) {
            node.dirty = false;
            node.verified_at = revision;
        }
        Ok(id)
    }

    /// Whether a dependency's value is another than at `since`.
    fn has_changed(&self, dep: Dep, since: u64) -> bool {
        match dep {
            Dep::Fact(fact) => self.core.borrow().facts.get(fact.0).is_none_or(|fact| fact.changed_at > since),
            Dep::Node(child) => {
                let dirty = match self.core.borrow().nodes.get(&child) {
                    None => return true,
                    Some(node) => node.dirty,
                };
                if dirty && self.refresh(child).ok() != Some(child) {
                    return true;
                }
                self.core.borrow().nodes.get(&child).is_none_or(|node| node.changed_at > since)
            }
        }
    }

    /// Computes a query, in place of `old` where given.
    fn compute(&self, query: QueryId, old: Option<NodeId>) -> Result<NodeId, Panic> {
        let (code, depth) = {
            let mut core = self.core.borrow_mut();
            if core.frames.len() >= MAX_DEPTH {
                return Err(Box::new("queries ask for each other without end"));
            }
            core.frames.push(Frame::default());
            core.computed += 1;
            (core.query(query), core.frames.len())
        };
        let result = catch_unwind(AssertUnwindSafe(|| code.compute(self)));
        let mut core = self.core.borrow_mut();
        // A panic below may have left inner traces on the stack: what they read is ours, too.
        while core.frames.len() > depth {
            let inner = core.frames.pop().unwrap_or_default();
            if let Some(frame) = core.frames.last_mut() {
                frame.absorb(inner);
            }
        }
        let frame = core.frames.pop().unwrap_or_default();
        let previous = old.and_then(|old| core.nodes.get(&old)).map(|node| node.value.clone());
        let (value, fault) = match result {
            Ok(value) => (value, None),
            Err(panic) => match code.rescue(previous.as_ref()) {
                Some(value) => (value, Some(panic_text(&*panic))),
                None => {
                    if let Some(outer) = core.frames.last_mut() {
                        outer.absorb(frame);
                    }
                    return Err(panic);
                }
            },
        };
        let same_trace = old.and_then(|old| core.nodes.get(&old)).is_some_and(|node| *node.attrs == *frame.attrs);
        match old {
            Some(old) if same_trace => {
                let same_value = previous.is_some_and(|previous| code.same(&previous, &value));
                Self::replace(&mut core, old, value, same_value, frame, fault);
                Ok(old)
            }
            Some(old) => {
                core.drop_node(old);
                Ok(core.keep(query, value, frame, fault))
            }
            None => Ok(core.keep(query, value, frame, fault)),
        }
    }

    /// Puts a new computation's outcome into its node. An equal value stays as it was, so that what rests on it does, too.
    fn replace(core: &mut Core, id: NodeId, value: Value, same: bool, frame: Frame, fault: Option<Arc<str>>) {
        let revision = core.revision;
        let Some(node) = core.nodes.get_mut(&id) else { return };
        let old = std::mem::replace(&mut node.deps, frame.deps.into());
        let deps = node.deps.clone();
        node.dirty = false;
        node.verified_at = revision;
        node.fault = fault;
        if !same {
            node.value = value;
            node.changed_at = revision;
        }
        if *old != *deps {
            let known: rustc_hash::FxHashSet<Dep> = old.iter().copied().collect();
            let new: Vec<Dep> = deps.iter().filter(|dep| !known.contains(dep)).copied().collect();
            core.add_parent(&new, id);
        }
    }
}

/// The answer that a proxy query's value gives.
fn answer_of<Q: ProxyQuery>(value: &Value) -> AttrValue {
    match value.clone().downcast::<Q::Value>() {
        Ok(value) => AttrValue::Derived(AttrDerived(DerivedValue(value))),
        Err(_) => AttrValue::Absent,
    }
}

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Arc::from(text.unwrap_or("panic without a message"))
}
