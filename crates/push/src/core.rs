//! The engine's tables and their operations: interning, recording, marking, dropping.

mod copy;
mod gates;
mod mark;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::sweep::{Sweep, Swept};

use super::attr::AttrValue;
use super::deps::{Dep, Deps};
use super::engine::{EngineConfig, EngineSizes, Interest};
use super::fact::FactKey;
use super::memo::{
    AnyQuery, AttrDef, AttrId, Fact, FactId, Frame, Node, NodeId, QueryId, Value, ValueId,
};
use super::name_list::NameChunks;
use super::node_list::NodeList;
use super::notice::Notices;
use super::proxy::Proxy;
use super::query::Query;
use super::resource::{Collection, ResourceType};
use super::tree::Tree;
use navarch_api::growth::push_tight;
use navarch_api::hash::KeyedMap;
use navarch_api::hash_index::{HashIndex, KeyHash};
use navarch_api::names::ResourceName;

/// The engine's state of a connected proxy.
pub(super) struct ProxyState {
    pub(super) proxy: Arc<Proxy>,
    /// Answers to attributes that were read so far.
    pub(super) answers: KeyedMap<AttrId, ValueId>,
    /// The origin of derived answers.
    pub(super) derived: BTreeMap<AttrId, Derived>,
    /// The published state of its subscriptions.
    pub(super) published: KeyedMap<ResourceType, PublishedState>,
    /// A subscription that is being computed in time slices.
    pub(super) prepared: Option<Prepared>,
}

/// The partial result of a subscription that is computed in time slices.
pub(super) struct Prepared {
    pub(super) kind: ResourceType,
    pub(super) interest: Interest,
    /// Its names, and the revision at which they were computed.
    pub(super) names: Option<(u64, Arc<NameChunks>)>,
    /// The last name that was processed.
    pub(super) last: Option<ResourceName>,
    /// Complete pieces. Sweeps keep them although nothing depends on them yet.
    pub(super) pieces: Vec<NodeId>,
    /// Resources of the incomplete piece.
    pub(super) resources: Vec<NodeId>,
}

impl Prepared {
    /// An empty result.
    pub(super) fn new(kind: ResourceType, interest: Interest) -> Self {
        Self {
            kind,
            interest,
            names: None,
            last: None,
            pieces: Vec::new(),
            resources: Vec::new(),
        }
    }
}

/// Where a derived answer comes from.
#[derive(Clone)]
pub(super) enum Derived {
    /// From this node.
    From(NodeId),
    /// Its computation panicked with this message, and there is no earlier value.
    Failed(Arc<str>),
}

/// The last published state of a subscription.
#[derive(Clone)]
pub(super) struct PublishedState {
    pub(super) query: QueryId,
    pub(super) node: NodeId,
    /// Its value when last published.
    pub(super) collection: Arc<Collection>,
}

/// All tables of the engine.
#[derive(Default)]
pub(super) struct Core {
    config: EngineConfig,
    /// Revision of the snapshot in force.
    pub(super) revision: u64,
    /// The next node id.
    next_node: u64,
    /// Kept results. Boxed, since a table that grows by doubling has room for twice as many.
    pub(super) nodes: KeyedMap<NodeId, Box<Node>>,
    /// Facts read so far.
    pub(super) facts: Vec<Fact>,
    /// Ids of facts by key; the keys are in `facts`.
    fact_index: HashIndex,
    /// Ids of facts without readers, for reuse; the lowest first so that `facts` can shrink.
    free_facts: BTreeSet<FactId>,
    /// Interned queries; `None` where one was forgotten.
    queries: Vec<Option<Arc<dyn AnyQuery>>>,
    /// Ids of dropped queries, for reuse, the lowest first.
    free_queries: BTreeSet<QueryId>,
    /// Ids of queries by type and key; the keys are in `queries`.
    query_index: HashIndex,
    /// The tree of each query.
    pub(super) trees: Vec<Option<Tree>>,
    /// Attributes that were read so far; `None` where one was dropped.
    attrs: Vec<Option<AttrDef>>,
    /// Ids of dropped attributes, for reuse.
    free_attrs: Vec<AttrId>,
    /// Interned plain attributes.
    plain_ids: KeyedMap<super::attr::Attr, AttrId>,
    /// Interned derived attributes.
    derived_ids: KeyedMap<QueryId, AttrId>,
    /// Interned answers.
    value_ids: KeyedMap<AttrValue, ValueId>,
    /// Ids of dropped answers, for reuse.
    free_values: Vec<ValueId>,
    /// Traces being recorded, innermost last.
    pub(super) frames: Vec<Frame>,
    /// Connected proxies.
    pub(super) proxies: KeyedMap<u64, ProxyState>,
    /// Marked results whose dependents are not marked until the result is known to differ, the
    /// lowest first.
    pub(super) gates: BTreeSet<(u16, NodeId)>,
    /// Gates that are being settled, the outermost first.
    settling: Vec<NodeId>,
    /// Whether marking waits at gates.
    pub(super) waits_at_gates: bool,
    /// Number of results marked and dependencies checked since the start.
    pub(super) visited: u64,
    /// Marked nodes with subscribers, waiting to be revalidated.
    pub(super) marked_published: Vec<NodeId>,
    /// Marked nodes that are attributes of proxies, waiting to be revalidated.
    pub(super) marked_watched: Vec<NodeId>,
    /// Subscriptions whose node was dropped, waiting to be revalidated.
    pub(super) dropped_subscriptions: BTreeSet<(u64, ResourceType)>,
    /// Proxies with a derived answer whose node was dropped, waiting to be revalidated.
    pub(super) unanswered: BTreeSet<u64>,
    /// Proxies with a derived answer that could not be updated: retried at every change.
    pub(super) failing: BTreeSet<u64>,
    /// Number of results computed since the start.
    pub(super) computed: u64,
    /// Number of lookups since the start that found a valid result.
    pub(super) reused: u64,
    /// Remarks since the last log, each once.
    pub(super) fresh_remarks: BTreeSet<Arc<str>>,
    /// Gauge items of results in force.
    pub(super) notices: Notices,
    /// Whether subscriptions have ended since the last sweep, so that results may be unused.
    pub(super) has_orphans: bool,
    /// The sweep in progress.
    sweeping: Option<Box<Sweep>>,
    /// Counts the sweeps.
    sweep_number: u32,
    /// Table sizes after the last sweep.
    swept: Swept,
    /// Edges of results dropped since then that are still in lists of parents.
    loose_edges: usize,
}

/// The index in its table of an item with this number in a [`HashIndex`].
fn index(number: u32) -> usize {
    usize::try_from(number).expect("a usize has at least 32 bits")
}

/// The number in a [`HashIndex`] of an item with this index.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("2³² facts or queries would take hundreds of gigabytes")
}

/// The result of looking up a query for a proxy.
pub(super) enum Lookup {
    Node(NodeId),
    /// A derived attribute must be computed first.
    Derive(AttrId),
    /// No result yet.
    Nothing,
}

impl Core {
    /// Empty tables, at the first revision.
    pub(super) fn new(config: EngineConfig) -> Self {
        Self {
            config,
            revision: 1,
            ..Self::default()
        }
    }

    /// Interns a query key. The code that depends on the key's type is short, since it is compiled
    /// for each of about 250 types.
    pub(super) fn query_id<Q: Query>(&mut self, query: &Q) -> QueryId {
        let hash = query.key_hash();
        let is_it = |kept: &dyn AnyQuery| kept.as_any().downcast_ref::<Q>() == Some(query);
        self.find_query(hash, &is_it)
            .unwrap_or_else(|| self.add_query(hash, Arc::new(query.clone())))
    }

    /// The id of the query with this hash for which `is_it` returns true.
    fn find_query(&self, hash: KeyHash, is_it: &dyn Fn(&dyn AnyQuery) -> bool) -> Option<QueryId> {
        let mut candidates = self
            .query_index
            .get_at(hash)
            .iter()
            .map(|number| QueryId(index(*number)));
        candidates.find(|id| {
            self.queries
                .get(id.0)
                .and_then(Option::as_deref)
                .is_some_and(is_it)
        })
    }

    /// Assigns an id to a new query.
    fn add_query(&mut self, hash: KeyHash, query: Arc<dyn AnyQuery>) -> QueryId {
        let id = self
            .free_queries
            .pop_first()
            .unwrap_or(QueryId(self.queries.len()));
        match self.queries.get_mut(id.0) {
            Some(slot) => *slot = Some(query),
            None => {
                push_tight(&mut self.queries, Some(query));
                push_tight(&mut self.trees, None);
            }
        }
        self.query_index.insert_at(hash, number(id.0));
        id
    }

    /// Whether results of a query are always gates, regardless of the number of dependents.
    fn is_gate_by_nature(&self, id: QueryId) -> bool {
        self.queries
            .get(id.0)
            .and_then(Option::as_ref)
            .is_some_and(|query| query.is_gate())
    }

    pub(super) fn query(&self, id: QueryId) -> Arc<dyn AnyQuery> {
        self.queries
            .get(id.0)
            .and_then(Clone::clone)
            .expect("ids are given out for kept queries and dropped with them")
    }

    /// The id of a fact that has been read.
    fn known_fact(&self, hash: KeyHash, key: &FactKey) -> Option<FactId> {
        let mut candidates = self
            .fact_index
            .get_at(hash)
            .iter()
            .map(|number| FactId(index(*number)));
        candidates.find(|id| self.facts.get(id.0).is_some_and(|fact| fact.key == *key))
    }

    /// Interns a fact key.
    pub(super) fn fact_id(&mut self, key: FactKey) -> FactId {
        let hash = KeyHash::of(&key);
        if let Some(id) = self.known_fact(hash, &key) {
            return id;
        }

        // Changes before the first read do not matter.
        let fact = Fact {
            key,
            changed_at: 0,
            parents: NodeList::default(),
        };
        let id = self
            .free_facts
            .pop_first()
            .unwrap_or(FactId(self.facts.len()));

        match self.facts.get_mut(id.0) {
            Some(slot) => *slot = fact,
            None => push_tight(&mut self.facts, fact),
        }

        self.fact_index.insert_at(hash, number(id.0));
        id
    }

    /// Number of facts that have been read.
    fn fact_count(&self) -> usize {
        self.facts.len() - self.free_facts.len()
    }

    /// All facts that have been read.
    pub(super) fn all_facts(&self) -> Vec<FactKey> {
        let used = self
            .facts
            .iter()
            .enumerate()
            .filter(|(id, _)| !self.free_facts.contains(&FactId(*id)));
        used.map(|(_, fact)| fact.key.clone()).collect()
    }

    /// The sizes of all tables.
    pub(super) fn sizes(&self) -> EngineSizes {
        EngineSizes {
            results: self.nodes.len(),
            facts: self.fact_count(),
            attributes: self.attrs.len() - self.free_attrs.len(),
            attribute_values: self.value_ids.len(),
            proxies: self.proxies.len(),
        }
    }

    pub(super) fn plain_attr(&mut self, attr: &super::attr::Attr) -> AttrId {
        if let Some(id) = self.plain_ids.get(attr).copied() {
            self.touch_attr(id);
            return id;
        }
        let id = self.new_attr(AttrDef::Plain(attr.clone()));
        self.plain_ids.insert(attr.clone(), id);
        id
    }

    pub(super) fn derived_attr(
        &mut self,
        query: QueryId,
        answer: fn(&Value) -> AttrValue,
    ) -> AttrId {
        if let Some(id) = self.derived_ids.get(&query).copied() {
            self.touch_attr(id);
            return id;
        }
        let id = self.new_attr(AttrDef::Derived { query, answer });
        self.derived_ids.insert(query, id);
        id
    }

    /// Assigns an id to an attribute.
    fn new_attr(&mut self, definition: AttrDef) -> AttrId {
        let id = self.free_attrs.pop().unwrap_or(AttrId(self.attrs.len()));
        match self.attrs.get_mut(id.0) {
            Some(slot) => *slot = Some(definition),
            None => self.attrs.push(Some(definition)),
        }
        self.touch_attr(id);
        id
    }

    pub(super) fn attr(&self, id: AttrId) -> Option<AttrDef> {
        self.attrs.get(id.0).cloned().flatten()
    }

    pub(super) fn value_id(&mut self, value: AttrValue) -> ValueId {
        if let Some(id) = self.value_ids.get(&value).copied() {
            self.touch_value(id);
            return id;
        }
        // Every id below the count is either in use or free.
        let next = ValueId(self.value_ids.len() + self.free_values.len());
        let id = self.free_values.pop().unwrap_or(next);
        self.value_ids.insert(value, id);
        self.touch_value(id);
        id
    }

    /// Stores a derived answer of a proxy and adds the proxy to the watchers of the node.
    pub(super) fn watch(&mut self, proxy: u64, attr: AttrId, node: NodeId, value: ValueId) {
        self.touch_attr(attr);
        let Some(state) = self.proxies.get_mut(&proxy) else {
            return;
        };
        state.answers.insert(attr, value);
        let left = match state.derived.insert(attr, Derived::From(node)) {
            Some(Derived::From(left)) if left != node => Some(left),
            Some(Derived::From(_) | Derived::Failed(_)) | None => None,
        };
        if let Some(left) = left.and_then(|left| self.nodes.get_mut(&left)) {
            left.rare_mut().watchers.remove(&(proxy, attr));
        }
        if let Some(node) = self.nodes.get_mut(&node) {
            node.rare_mut().watchers.insert((proxy, attr));
        }
    }

    /// Keeps the last good derived answer of a proxy if computing a new one fails, or records that
    /// there is no answer.
    pub(super) fn keep_answer(&mut self, proxy: u64, attr: AttrId, failure: Arc<str>) -> ValueId {
        self.failing.insert(proxy);
        let last = match self
            .proxies
            .get(&proxy)
            .and_then(|state| state.derived.get(&attr))
        {
            Some(Derived::From(node)) => self.nodes.get(node).map(|node| node.value.clone()),
            Some(Derived::Failed(_)) | None => None,
        };

        let answer = match (last, self.attr(attr)) {
            (Some(last), Some(AttrDef::Derived { answer, .. })) => Some(answer(&last)),
            _ => None,
        };
        let failed = answer.is_none();
        let value = self.value_id(answer.unwrap_or(AttrValue::Failed));
        self.touch_attr(attr);

        if let Some(state) = self.proxies.get_mut(&proxy) {
            state.answers.insert(attr, value);
            if failed {
                state.derived.insert(attr, Derived::Failed(failure));
            }
        }

        value
    }

    /// The proxy's answer to a plain attribute, or to a derived one that is already computed.
    pub(super) fn answer(&mut self, proxy: u64, attr: AttrId) -> Option<ValueId> {
        let state = self.proxies.get(&proxy)?;
        if let Some(value) = state.answers.get(&attr) {
            return Some(*value);
        }
        let Some(AttrDef::Plain(question)) = self.attrs.get(attr.0)? else {
            return None;
        };
        let value = question.of(&state.proxy);
        let value = self.value_id(value);
        self.touch_attr(attr);
        self.proxies.get_mut(&proxy)?.answers.insert(attr, value);
        Some(value)
    }

    /// Walks the tree of a query for a proxy.
    pub(super) fn find(&mut self, query: QueryId, proxy: u64) -> Lookup {
        // The path is walked without holding a borrow on the tree, since answering may intern.
        let mut path: Vec<ValueId> = Vec::new();

        loop {
            let mut tree = self.trees.get(query.0).and_then(Option::as_ref);

            for value in &path {
                tree = match tree {
                    Some(Tree::Branch(branch)) => branch.children.get(value),
                    Some(Tree::Leaf(_)) | None => None,
                };
            }

            // Fast path: continue as long as the answers are known.
            let attr = loop {
                match tree {
                    None => return Lookup::Nothing,
                    Some(Tree::Leaf(id)) => return Lookup::Node(*id),
                    Some(Tree::Branch(branch)) => {
                        let known = self
                            .proxies
                            .get(&proxy)
                            .and_then(|state| state.answers.get(&branch.attr));
                        let Some(value) = known else {
                            break branch.attr;
                        };
                        path.push(*value);
                        tree = branch.children.get(value);
                    }
                }
            };

            if self.answer(proxy, attr).is_none() {
                return Lookup::Derive(attr);
            }
        }
    }

    /// Stores a new result, with edges from everything that it read.
    pub(super) fn store(
        &mut self,
        query: QueryId,
        value: Value,
        frame: Frame,
        fault: Option<Arc<str>>,
    ) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        let deps: Deps = frame.deps.into_iter().collect();

        // An empty list made from a `Vec` would need its own allocation.
        let attrs: Arc<[(AttrId, ValueId)]> = if frame.attrs.is_empty() {
            Arc::default()
        } else {
            frame.attrs.into()
        };

        let remarks = frame.remarks.into_texts();
        self.fresh_remarks.extend(remarks.iter().cloned());
        self.notices.set(id, frame.notices);
        self.visited += deps.len() as u64;
        self.add_parent(deps.iter(), id);

        for (attr, value) in attrs.iter() {
            self.touch_attr(*attr);
            self.touch_value(*value);
        }

        let height = self.height_over(&deps);
        let mut dropped = Vec::new();
        if let Some(slot) = self.trees.get_mut(query.0) {
            Tree::insert(slot, &attrs, id, &mut dropped);
        }

        for gone in dropped {
            self.discard(gone);
        }

        let revision = self.revision;
        let mut node = Node {
            query,
            value,
            deps,
            attrs,
            parents: NodeList::default(),
            rare: None,
            changed_at: revision,
            verified_at: revision,
            height,
            dirty: false,
            gated: false,
            sweep: self.sweep_number,
        };

        node.set_faults(fault, remarks);
        self.nodes.insert(id, Box::new(node));
        id
    }

    /// Makes `node` a parent of everything in `deps`.
    pub(super) fn add_parent(&mut self, deps: impl Iterator<Item = Dep>, node: NodeId) {
        for dep in deps {
            match dep {
                Dep::Fact(fact) => {
                    if let Some(fact) = self.facts.get_mut(fact.0) {
                        fact.parents.push(node);
                    }
                }
                Dep::Node(child) => {
                    self.touch(child);
                    if let Some(child) = self.nodes.get_mut(&child) {
                        child.parents.push(node);
                    }
                }
            }
        }
    }

    /// Drops a result.
    pub(super) fn drop_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(&id)
            && let Some(slot) = self.trees.get_mut(node.query.0)
        {
            Tree::remove(slot, &node.attrs, id);
        }
        self.discard(id);
    }

    /// Drops a result that no tree refers to any more, and notes its subscribers and watchers.
    fn discard(&mut self, id: NodeId) {
        let Some(node) = self.nodes.remove(&id) else {
            return;
        };
        self.notices.set(id, Vec::new());
        self.loose_edges += node.deps.len();
        self.dropped_subscriptions.extend(&node.rare().subscribers);
        self.unanswered
            .extend(node.rare().watchers.iter().map(|(proxy, _)| *proxy));
        if !node.dirty || node.gated {
            // Its dependents are not marked yet. A result that is not dirty gets here only if a
            // translator is not pure: by the current facts the result is valid, but the tree no
            // longer finds it.
            self.mark_all(node.parents.as_slice().to_vec());
        }
    }

    /// Whether results with subscribers or watchers were dropped and these are not revalidated yet.
    pub(super) fn has_dropped(&self) -> bool {
        let marked = self.marked_published.is_empty() && self.marked_watched.is_empty();
        !(marked && self.dropped_subscriptions.is_empty() && self.unanswered.is_empty())
    }
}
