//! The engine's tables and their operations: interning, recording, marking, dropping.

mod copy;
mod counters;
mod diagnostics;
mod gates;
mod mark;
mod marked;
mod sweep;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::counters::Counters;
use self::diagnostics::Diagnostics;
use self::gates::Gates;
use self::marked::Marked;
use self::sweep::Sweeps;

use super::attr::{Attr, AttrValue};
use super::attributes::{Answers, AttrDef, Attributes, ToAnswer};
use super::deps::{Dep, Deps};
use super::engine::{EngineConfig, EngineSizes, Interest};
use super::facts::Facts;
use super::ids::{AttrId, NodeId, QueryId, ValueId};
use super::memo::{Memo, Node};
use super::name_list::NameChunks;
use super::node_list::NodeList;
use super::proxy::Proxy;
use super::queries::Queries;
use super::query::{AnyQuery, Query, Value};
use super::resource::{Collection, ResourceType};
use super::trace::{Trace, Traces};
use super::tree::Tree;
use navarch_api::hash::KeyedMap;
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
    /// Kept results.
    pub(super) memo: Memo,
    /// Facts that were read.
    pub(super) facts: Facts,
    /// Queries that were asked.
    pub(super) queries: Queries,
    /// Attributes that were read.
    attributes: Attributes,
    /// Values of attributes.
    answers: Answers,
    /// Traces that are being recorded.
    pub(super) traces: Traces,
    /// Connected proxies.
    pub(super) proxies: KeyedMap<u64, ProxyState>,
    /// Gates that wait.
    pub(super) gates: Gates,
    /// What is to be revalidated.
    pub(super) marked: Marked,
    /// The work since the start.
    pub(super) counters: Counters,
    /// What computations report beside their results.
    pub(super) diagnostics: Diagnostics,
    /// Removal of unused results.
    pub(super) sweeps: Sweeps,
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
        self.queries
            .find(hash, &is_it)
            .unwrap_or_else(|| self.queries.add(hash, Arc::new(query.clone())))
    }

    /// The sizes of all tables.
    pub(super) fn sizes(&self) -> EngineSizes {
        EngineSizes {
            results: self.memo.len(),
            facts: self.facts.len(),
            attributes: self.attributes.len(),
            attribute_values: self.answers.len(),
            proxies: self.proxies.len(),
        }
    }

    /// The id of a property of proxies, which is read.
    pub(super) fn plain_attr(&mut self, attr: &Attr) -> AttrId {
        let id = self.attributes.plain(attr);
        self.sweeps.keep_attribute(id);
        id
    }

    /// The id of a query's value as an attribute, which is read.
    pub(super) fn derived_attr(&mut self, query: QueryId, answer: ToAnswer) -> AttrId {
        let id = self.attributes.derived(query, answer);
        self.sweeps.keep_attribute(id);
        id
    }

    pub(super) fn attr(&self, id: AttrId) -> Option<&AttrDef> {
        self.attributes.get(id)
    }

    /// The id of a value, which is used.
    pub(super) fn answer_id(&mut self, value: AttrValue) -> ValueId {
        let id = self.answers.id(value);
        self.sweeps.keep_answer(id);
        id
    }

    /// Stores a derived answer of a proxy and adds the proxy to the watchers of the node.
    pub(super) fn watch(&mut self, proxy: u64, attr: AttrId, node: NodeId, value: ValueId) {
        self.sweeps.keep_attribute(attr);
        let Some(state) = self.proxies.get_mut(&proxy) else {
            return;
        };
        state.answers.insert(attr, value);
        let left = match state.derived.insert(attr, Derived::From(node)) {
            Some(Derived::From(left)) if left != node => Some(left),
            Some(Derived::From(_) | Derived::Failed(_)) | None => None,
        };
        if let Some(left) = left.and_then(|left| self.memo.get_mut(left)) {
            left.rare_mut().watchers.remove(&(proxy, attr));
        }
        if let Some(node) = self.memo.get_mut(node) {
            node.rare_mut().watchers.insert((proxy, attr));
        }
    }

    /// Keeps the last good derived answer of a proxy if computing a new one fails, or records that
    /// there is no answer.
    pub(super) fn keep_answer(&mut self, proxy: u64, attr: AttrId, failure: Arc<str>) -> ValueId {
        self.marked.add_failing(proxy);
        let last = match self
            .proxies
            .get(&proxy)
            .and_then(|state| state.derived.get(&attr))
        {
            Some(Derived::From(node)) => self.memo.get(*node).map(|node| node.value.clone()),
            Some(Derived::Failed(_)) | None => None,
        };

        let answer = match (last, self.attr(attr)) {
            (Some(last), Some(AttrDef::Derived { answer, .. })) => Some(answer(&last)),
            _ => None,
        };
        let failed = answer.is_none();
        let value = self.answer_id(answer.unwrap_or(AttrValue::Failed));
        self.sweeps.keep_attribute(attr);

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
        let AttrDef::Plain(question) = self.attributes.get(attr)? else {
            return None;
        };
        let value = question.of(&state.proxy);
        let value = self.answer_id(value);
        self.sweeps.keep_attribute(attr);
        self.proxies.get_mut(&proxy)?.answers.insert(attr, value);
        Some(value)
    }

    /// Walks the tree of a query for a proxy.
    pub(super) fn find(&mut self, query: QueryId, proxy: u64) -> Lookup {
        // The path is walked without holding a borrow on the tree, since answering may intern.
        let mut path: Vec<ValueId> = Vec::new();

        loop {
            let mut tree = self.queries.tree(query);

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
        trace: Trace,
        fault: Option<Arc<str>>,
    ) -> NodeId {
        let id = self.memo.new_id();
        let deps: Deps = trace.deps.into_iter().collect();

        // An empty list made from a `Vec` would need its own allocation.
        let attrs: Arc<[(AttrId, ValueId)]> = if trace.attrs.is_empty() {
            Arc::default()
        } else {
            trace.attrs.into()
        };

        let remarks = trace.remarks.into_texts();
        self.diagnostics.add_remarks(&remarks);
        self.diagnostics.set_notices(id, trace.notices);
        self.counters.visit(deps.len());
        self.add_parent(deps.iter(), id);

        for (attr, value) in attrs.iter() {
            self.sweeps.keep_attribute(*attr);
            self.sweeps.keep_answer(*value);
        }

        let height = self.height_over(&deps);
        let mut dropped = Vec::new();
        self.queries.add_result(query, &attrs, id, &mut dropped);
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
            sweep: self.sweeps.number(),
        };

        node.set_faults(fault, remarks);
        self.memo.insert(id, node);
        id
    }

    /// Makes `node` a parent of everything in `deps`.
    pub(super) fn add_parent(&mut self, deps: impl Iterator<Item = Dep>, node: NodeId) {
        for dep in deps {
            match dep {
                Dep::Fact(fact) => self.facts.add_reader(fact, node),
                Dep::Node(child) => {
                    self.touch(child);
                    if let Some(child) = self.memo.get_mut(child) {
                        child.parents.push(node);
                    }
                }
            }
        }
    }

    /// Drops a result.
    pub(super) fn drop_node(&mut self, id: NodeId) {
        if let Some(node) = self.memo.get(id) {
            self.queries.remove_result(node.query, &node.attrs, id);
        }
        self.discard(id);
    }

    /// Drops a result that no tree refers to any more, and notes its subscribers and watchers.
    fn discard(&mut self, id: NodeId) {
        let Some(node) = self.memo.remove(id) else {
            return;
        };
        self.diagnostics.remove_notices(id);
        self.sweeps.add_loose_edges(node.deps.len());
        self.marked.add_dropped(&node);
        if !node.dirty || node.gated {
            // Its dependents are not marked yet. A result that is not dirty gets here only if a
            // translator is not pure: by the current facts the result is valid, but the tree no
            // longer finds it.
            self.mark_all(node.parents.as_slice().to_vec());
        }
    }
}
