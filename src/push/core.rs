//! The engine's tables and the moves on them: interning, recording, marking, forgetting.

use std::any::{Any, TypeId};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::attr::AttrValue;
use super::fact::FactKey;
use super::memo::{AnyQuery, AttrDef, AttrId, Dep, Fact, FactId, Frame, Node, NodeId, QueryId, Tree, Value, ValueId};
use super::proxy::Proxy;
use super::query::Query;
use super::resource::{Collection, ResourceType};

/// What the engine knows of a connected proxy.
pub(super) struct ProxyState {
    /// The proxy.
    pub(super) proxy: Arc<Proxy>,
    /// Its answers so far.
    pub(super) answers: FxHashMap<AttrId, ValueId>,
    /// The derived ones among them with the nodes that give them, inner before outer.
    pub(super) derived: Vec<(AttrId, NodeId)>,
    /// What it shows, by type.
    pub(super) shown: FxHashMap<ResourceType, Shown>,
}

/// What a subscription shows.
pub(super) struct Shown {
    /// The query behind it.
    pub(super) query: QueryId,
    /// The node that answers it.
    pub(super) node: NodeId,
    /// Its value when last published.
    pub(super) collection: Arc<Collection>,
}

/// All tables of the engine.
#[derive(Default)]
pub(super) struct Core {
    /// Revision of the snapshot in force.
    pub(super) revision: u64,
    /// The next node's name.
    next_node: u64,
    /// Kept results.
    pub(super) nodes: FxHashMap<NodeId, Node>,
    /// Facts read so far.
    pub(super) facts: Vec<Fact>,
    /// Names of the facts.
    fact_ids: FxHashMap<FactKey, FactId>,
    /// Interned queries; `None` where one was forgotten.
    queries: Vec<Option<Arc<dyn AnyQuery>>>,
    /// Names of forgotten queries, to be given again.
    free_queries: Vec<QueryId>,
    /// By query type: names of its keys.
    tables: FxHashMap<TypeId, Box<dyn Any + Send>>,
    /// The tree of each query.
    pub(super) trees: Vec<Option<Tree>>,
    /// Questions asked so far.
    attrs: Vec<AttrDef>,
    /// Names of the plain ones.
    plain_ids: FxHashMap<super::attr::Attr, AttrId>,
    /// Names of the derived ones.
    derived_ids: FxHashMap<QueryId, AttrId>,
    /// Names of the answers.
    value_ids: FxHashMap<AttrValue, ValueId>,
    /// Traces being recorded, innermost last.
    pub(super) frames: Vec<Frame>,
    /// Connected proxies.
    pub(super) proxies: FxHashMap<u64, ProxyState>,
    /// Marked nodes with subscribers, waiting to be settled.
    pub(super) marked_shown: Vec<NodeId>,
    /// Marked nodes that are attributes of proxies, waiting to be settled.
    pub(super) marked_watched: Vec<NodeId>,
    /// How many results were computed since the start.
    pub(super) computed: u64,
    /// Results left by the last sweep.
    live_after_sweep: usize,
}

/// Where a tree leads for a proxy.
pub(super) enum Found {
    /// To this node.
    Node(NodeId),
    /// To a question whose answer must be derived first.
    Derive(AttrId),
    /// Nowhere yet.
    Nothing,
}

impl Core {
    /// Empty tables, at the first revision.
    pub(super) fn new() -> Self {
        Self { revision: 1, ..Self::default() }
    }

    /// Interns a query key.
    pub(super) fn query_id<Q: Query>(&mut self, query: &Q) -> QueryId {
        let table = self
            .tables
            .entry(TypeId::of::<Q>())
            .or_insert_with(|| Box::new(FxHashMap::<Q, QueryId>::default()))
            .downcast_mut::<FxHashMap<Q, QueryId>>()
            .expect("the table under a type's id is made for that type two lines above");
        if let Some(id) = table.get(query) {
            return *id;
        }
        let kept: Arc<dyn AnyQuery> = Arc::new(query.clone());
        let id = match self.free_queries.pop() {
            Some(id) => {
                if let Some(slot) = self.queries.get_mut(id.0) {
                    *slot = Some(kept);
                }
                id
            }
            None => {
                self.queries.push(Some(kept));
                self.trees.push(None);
                QueryId(self.queries.len() - 1)
            }
        };
        table.insert(query.clone(), id);
        id
    }

    /// The query of this id.
    pub(super) fn query(&self, id: QueryId) -> Arc<dyn AnyQuery> {
        self.queries.get(id.0).and_then(Clone::clone).expect("ids are given out for kept queries and dropped with them")
    }

    /// Interns a fact key.
    pub(super) fn fact_id(&mut self, key: FactKey) -> FactId {
        if let Some(id) = self.fact_ids.get(&key) {
            return *id;
        }
        let id = FactId(self.facts.len());
        self.facts.push(Fact { key: key.clone(), changed_at: 0, parents: Vec::new() });
        self.fact_ids.insert(key, id);
        id
    }

    /// Interns a plain question.
    pub(super) fn plain_attr(&mut self, attr: &super::attr::Attr) -> AttrId {
        if let Some(id) = self.plain_ids.get(attr) {
            return *id;
        }
        let id = AttrId(self.attrs.len());
        self.attrs.push(AttrDef::Plain(attr.clone()));
        self.plain_ids.insert(attr.clone(), id);
        id
    }

    /// Interns a derived question.
    pub(super) fn derived_attr(&mut self, query: QueryId, answer: fn(&Value) -> AttrValue) -> AttrId {
        let attrs = &mut self.attrs;
        *self.derived_ids.entry(query).or_insert_with(|| {
            attrs.push(AttrDef::Derived { query, answer });
            AttrId(attrs.len() - 1)
        })
    }

    /// The question of this id.
    pub(super) fn attr(&self, id: AttrId) -> Option<AttrDef> {
        self.attrs.get(id.0).cloned()
    }

    /// Interns an answer.
    pub(super) fn value_id(&mut self, value: AttrValue) -> ValueId {
        let next = ValueId(self.value_ids.len());
        *self.value_ids.entry(value).or_insert(next)
    }

    /// The proxy's answer to a plain question, or to a derived one if it was derived before.
    pub(super) fn answer(&mut self, proxy: u64, attr: AttrId) -> Option<ValueId> {
        let state = self.proxies.get(&proxy)?;
        if let Some(value) = state.answers.get(&attr) {
            return Some(*value);
        }
        let AttrDef::Plain(question) = self.attrs.get(attr.0)? else { return None };
        let value = question.of(&state.proxy);
        let value = self.value_id(value);
        self.proxies.get_mut(&proxy)?.answers.insert(attr, value);
        Some(value)
    }

    /// Walks the tree of a query for a proxy.
    pub(super) fn find(&mut self, query: QueryId, proxy: u64) -> Found {
        // The path is walked without holding a borrow on the tree, since answering may intern.
        let mut path: Vec<ValueId> = Vec::new();
        loop {
            let mut tree = self.trees.get(query.0).and_then(Option::as_ref);
            for value in &path {
                tree = match tree {
                    Some(Tree::Branch { children, .. }) => children.get(value),
                    Some(Tree::Leaf(_)) | None => None,
                };
            }
            // Fast path: go on as long as the answers are known.
            let asked = loop {
                match tree {
                    None => return Found::Nothing,
                    Some(Tree::Leaf(id)) => return Found::Node(*id),
                    Some(Tree::Branch { attr, children }) => {
                        let known = self.proxies.get(&proxy).and_then(|state| state.answers.get(attr));
                        let Some(value) = known else { break *attr };
                        path.push(*value);
                        tree = children.get(value);
                    }
                }
            };
            if self.answer(proxy, asked).is_none() {
                return Found::Derive(asked);
            }
        }
    }

    /// Keeps a new result, with edges from all that it read.
    pub(super) fn keep(&mut self, query: QueryId, value: Value, frame: Frame, fault: Option<Arc<str>>) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        let deps: Arc<[Dep]> = frame.deps.into();
        let attrs: Arc<[(AttrId, ValueId)]> = frame.attrs.into();
        self.add_parent(&deps, id);
        let mut dropped = Vec::new();
        if let Some(slot) = self.trees.get_mut(query.0) {
            Tree::insert(slot, &attrs, id, &mut dropped);
        }
        for gone in dropped {
            self.nodes.remove(&gone);
        }
        let revision = self.revision;
        let node = Node {
            query,
            value,
            deps,
            attrs,
            parents: Vec::new(),
            subscribers: Vec::new(),
            watchers: Vec::new(),
            changed_at: revision,
            verified_at: revision,
            dirty: false,
            fault,
        };
        self.nodes.insert(id, node);
        id
    }

    /// Makes `node` a parent of everything in `deps`.
    pub(super) fn add_parent(&mut self, deps: &[Dep], node: NodeId) {
        for dep in deps {
            match dep {
                Dep::Fact(fact) => {
                    if let Some(fact) = self.facts.get_mut(fact.0) {
                        fact.parents.push(node);
                    }
                }
                Dep::Node(child) => {
                    if let Some(child) = self.nodes.get_mut(child) {
                        child.parents.push(node);
                    }
                }
            }
        }
    }

    /// Forgets a result.
    pub(super) fn drop_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.remove(&id)
            && let Some(slot) = self.trees.get_mut(node.query.0)
        {
            Tree::remove(slot, &node.attrs, id);
        }
    }

    /// Marks all that (transitively) read a changed fact. Costs what depends on the fact.
    pub(super) fn mark(&mut self, key: &FactKey) {
        let Some(id) = self.fact_ids.get(key) else { return };
        let Some(fact) = self.facts.get_mut(id.0) else { return };
        fact.changed_at = self.revision;
        let nodes = &self.nodes;
        let dep = Dep::Fact(*id);
        fact.parents.sort_unstable();
        fact.parents.dedup();
        fact.parents.retain(|parent| nodes.get(parent).is_some_and(|node| node.deps.contains(&dep)));
        let mut todo = fact.parents.clone();
        while let Some(id) = todo.pop() {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            if node.dirty {
                continue;
            }
            node.dirty = true;
            if !node.subscribers.is_empty() {
                self.marked_shown.push(id);
            }
            if !node.watchers.is_empty() {
                self.marked_watched.push(id);
            }
            node.parents.sort_unstable();
            node.parents.dedup();
            todo.extend_from_slice(&node.parents);
        }
    }

    /// Whether enough was forgotten or orphaned that a sweep pays.
    pub(super) fn wants_sweep(&self) -> bool {
        self.nodes.len() > 2 * self.live_after_sweep + 4096
    }

    /// Drops every result that no subscription and no attribute rests on.
    pub(super) fn sweep(&mut self) {
        let mut live: FxHashSet<NodeId> = FxHashSet::default();
        let mut todo: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.subscribers.is_empty() || !node.watchers.is_empty())
            .map(|(id, _)| *id)
            .collect();
        while let Some(id) = todo.pop() {
            if !live.insert(id) {
                continue;
            }
            if let Some(node) = self.nodes.get(&id) {
                todo.extend(node.deps.iter().filter_map(|dep| match dep {
                    Dep::Node(child) => Some(*child),
                    Dep::Fact(_) => None,
                }));
            }
        }
        let dead: Vec<NodeId> = self.nodes.keys().filter(|id| !live.contains(id)).copied().collect();
        for id in dead {
            self.drop_node(id);
        }
        for node in self.nodes.values_mut() {
            node.parents.retain(|parent| live.contains(parent));
            node.parents.shrink_to_fit();
        }
        for fact in &mut self.facts {
            fact.parents.retain(|parent| live.contains(parent));
            fact.parents.shrink_to_fit();
        }
        self.forget_queries();
        self.live_after_sweep = self.nodes.len();
    }

    /// Frees query keys whose tree is empty and that are no proxy's attribute.
    fn forget_queries(&mut self) {
        for (index, slot) in self.queries.iter_mut().enumerate() {
            let id = QueryId(index);
            let unused = self.trees.get(index).is_some_and(Option::is_none) && !self.derived_ids.contains_key(&id);
            if unused && let Some(query) = slot.take() {
                query.forget(&mut self.tables);
                self.free_queries.push(id);
            }
        }
    }
}
