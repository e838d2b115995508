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

use super::attributes::{AttrDef, AttrValue, AttrValues, Attributes, ToAttrValue};
use super::config::{EngineConfig, EngineSizes};
use super::deps::{Dep, Deps};
use super::facts::Facts;
use super::ids::{AttrId, NodeId, QueryId, SubscriberId, ValueId};
use super::inputs::Inputs;
use super::memo::{Memo, Node};
use super::node_list::NodeList;
use super::queries::Queries;
use super::query::{AnyQuery, Computes, Query, Value, key_hash};
use super::trace::{Trace, Traces};
use super::tree::Tree;
use navarch_tables::hash::KeyedMap;

/// The engine's state of a subscriber.
pub(crate) struct SubscriberState<I: Inputs> {
    pub(crate) subscriber: Arc<I::Subscriber>,
    /// The values of the attributes that were read so far.
    pub(crate) attr_values: KeyedMap<AttrId, ValueId>,
    /// The origins of the derived ones.
    pub(crate) derived: BTreeMap<AttrId, Derived>,
    /// The published state of its subscriptions.
    pub(crate) published: KeyedMap<I::Topic, PublishedState<I>>,
    /// Results for a later subscription. Sweeps keep them although nothing depends on them yet.
    pub(crate) held: Vec<NodeId>,
}

impl<I: Inputs> SubscriberState<I> {
    /// A subscriber without subscriptions.
    pub(crate) fn new(subscriber: Arc<I::Subscriber>) -> Self {
        Self {
            subscriber,
            attr_values: KeyedMap::default(),
            derived: BTreeMap::new(),
            published: KeyedMap::default(),
            held: Vec::new(),
        }
    }
}

/// Where the value of a derived attribute comes from.
#[derive(Clone)]
pub(crate) enum Derived {
    /// From this node.
    From(NodeId),
    /// Its computation panicked with this message, and there is no earlier value.
    Failed(Arc<str>),
}

/// The last published state of a subscription.
pub(crate) struct PublishedState<I: Inputs> {
    pub(crate) query: QueryId,
    pub(crate) node: NodeId,
    /// Its value when last published.
    pub(crate) value: Arc<I::Published>,
}

impl<I: Inputs> Clone for PublishedState<I> {
    fn clone(&self) -> Self {
        Self {
            query: self.query,
            node: self.node,
            value: self.value.clone(),
        }
    }
}

/// All tables of the engine.
pub(crate) struct Core<I: Inputs> {
    config: EngineConfig,
    /// Revision of the snapshot in force.
    pub(crate) revision: u64,
    /// Kept results.
    pub(crate) memo: Memo<I::Topic>,
    /// Facts that were read.
    pub(crate) facts: Facts<I::Fact>,
    /// Queries that were read.
    pub(crate) queries: Queries<I>,
    /// Attributes that were read.
    attributes: Attributes<I::Attribute, I::AttributeValue>,
    /// Values of attributes.
    attr_values: AttrValues<I::AttributeValue>,
    /// Traces that are being recorded.
    pub(crate) traces: Traces<I::Notice>,
    /// Connected subscribers.
    pub(crate) subscribers: KeyedMap<SubscriberId, SubscriberState<I>>,
    /// Gates that wait.
    pub(crate) gates: Gates,
    /// What is to be revalidated.
    pub(crate) marked: Marked<I::Topic>,
    /// The work since the start.
    pub(crate) counters: Counters,
    /// What computations report beside their results.
    pub(crate) diagnostics: Diagnostics<I::Notice>,
    /// Removal of unused results.
    pub(crate) sweeps: Sweeps,
}

/// The result of looking up a query for a subscriber.
pub(crate) enum Lookup {
    Node(NodeId),
    /// A derived attribute must be computed first.
    Derive(AttrId),
    /// No result yet.
    Nothing,
}

impl<I: Inputs> Core<I> {
    /// Empty tables, at the first revision.
    pub(crate) fn new(config: EngineConfig) -> Self {
        Self {
            config,
            revision: 1,
            memo: Memo::default(),
            facts: Facts::default(),
            queries: Queries::default(),
            attributes: Attributes::default(),
            attr_values: AttrValues::default(),
            traces: Traces::default(),
            subscribers: KeyedMap::default(),
            gates: Gates::default(),
            marked: Marked::default(),
            counters: Counters::default(),
            diagnostics: Diagnostics::default(),
            sweeps: Sweeps::default(),
        }
    }

    /// Interns a query key. The code that depends on the key's type is short, since it is compiled
    /// for each type.
    pub(crate) fn query_id<Q: Query>(&mut self, query: &Q) -> QueryId
    where
        I: Computes<Q>,
    {
        let hash = key_hash(query);
        let is_it = |kept: &dyn AnyQuery<I>| kept.as_any().downcast_ref::<Q>() == Some(query);
        self.queries
            .find(hash, &is_it)
            .unwrap_or_else(|| self.queries.add(hash, Arc::new(query.clone())))
    }

    /// The sizes of all tables.
    pub(crate) fn sizes(&self) -> EngineSizes {
        EngineSizes {
            results: self.memo.len(),
            facts: self.facts.len(),
            attributes: self.attributes.len(),
            attribute_values: self.attr_values.len(),
            subscribers: self.subscribers.len(),
        }
    }

    /// The id of a property of subscribers, which is read.
    pub(crate) fn plain_attr(&mut self, attr: &I::Attribute) -> AttrId {
        let id = self.attributes.plain(attr);
        self.sweeps.keep_attribute(id);
        id
    }

    /// The id of a query's value as an attribute, which is read.
    pub(crate) fn derived_attr(
        &mut self,
        query: QueryId,
        convert: ToAttrValue<I::AttributeValue>,
    ) -> AttrId {
        let id = self.attributes.derived(query, convert);
        self.sweeps.keep_attribute(id);
        id
    }

    pub(crate) fn attr(&self, id: AttrId) -> Option<&AttrDef<I::Attribute, I::AttributeValue>> {
        self.attributes.get(id)
    }

    /// The id of a value, which is used.
    pub(crate) fn attr_value_id(&mut self, value: AttrValue<I::AttributeValue>) -> ValueId {
        let id = self.attr_values.id(value);
        self.sweeps.keep_value(id);
        id
    }

    /// Stores a derived attribute of a subscriber and adds it to the watchers of the node.
    pub(crate) fn watch(
        &mut self,
        subscriber: SubscriberId,
        attr: AttrId,
        node: NodeId,
        value: ValueId,
    ) {
        self.sweeps.keep_attribute(attr);
        let Some(state) = self.subscribers.get_mut(&subscriber) else {
            return;
        };
        state.attr_values.insert(attr, value);
        let left = match state.derived.insert(attr, Derived::From(node)) {
            Some(Derived::From(left)) if left != node => Some(left),
            Some(Derived::From(_) | Derived::Failed(_)) | None => None,
        };
        if let Some(left) = left.and_then(|left| self.memo.get_mut(left)) {
            left.rare_mut().watchers.remove(&(subscriber, attr));
        }
        if let Some(node) = self.memo.get_mut(node) {
            node.rare_mut().watchers.insert((subscriber, attr));
        }
    }

    /// Keeps the last good value of a derived attribute if computing a new one fails, or records
    /// that it has none.
    pub(crate) fn keep_attr_value(
        &mut self,
        subscriber: SubscriberId,
        attr: AttrId,
        failure: Arc<str>,
    ) -> ValueId {
        self.marked.add_failing(subscriber);
        let last = match self
            .subscribers
            .get(&subscriber)
            .and_then(|state| state.derived.get(&attr))
        {
            Some(Derived::From(node)) => self.memo.get(*node).map(|node| node.value.clone()),
            Some(Derived::Failed(_)) | None => None,
        };

        let kept = match (last, self.attr(attr)) {
            (Some(last), Some(AttrDef::Derived { convert, .. })) => Some(convert(&last)),
            _ => None,
        };
        let failed = kept.is_none();
        let value = self.attr_value_id(kept.unwrap_or(AttrValue::Failed));
        self.sweeps.keep_attribute(attr);

        if let Some(state) = self.subscribers.get_mut(&subscriber) {
            state.attr_values.insert(attr, value);
            if failed {
                state.derived.insert(attr, Derived::Failed(failure));
            }
        }

        value
    }

    /// The subscriber's value of a plain attribute, or of a derived one that is already computed.
    pub(crate) fn attr_value(&mut self, subscriber: SubscriberId, attr: AttrId) -> Option<ValueId> {
        let state = self.subscribers.get(&subscriber)?;
        if let Some(value) = state.attr_values.get(&attr) {
            return Some(*value);
        }
        let AttrDef::Plain(attribute) = self.attributes.get(attr)? else {
            return None;
        };
        let value = AttrValue::Plain(I::attribute(&state.subscriber, attribute));
        let value = self.attr_value_id(value);
        self.sweeps.keep_attribute(attr);
        self.subscribers
            .get_mut(&subscriber)?
            .attr_values
            .insert(attr, value);
        Some(value)
    }

    /// Walks the tree of a query for a subscriber.
    pub(crate) fn find(&mut self, query: QueryId, subscriber: SubscriberId) -> Lookup {
        // The path is walked without holding a borrow on the tree, since reading an
        // attribute may intern its value.
        let mut path: Vec<ValueId> = Vec::new();

        loop {
            let mut tree = self.queries.tree(query);

            for value in &path {
                tree = match tree {
                    Some(Tree::Branch(branch)) => branch.children.get(value),
                    Some(Tree::Leaf(_)) | None => None,
                };
            }

            // Fast path: continue as long as the values are known.
            let attr = loop {
                match tree {
                    None => return Lookup::Nothing,
                    Some(Tree::Leaf(id)) => return Lookup::Node(*id),
                    Some(Tree::Branch(branch)) => {
                        let known = self
                            .subscribers
                            .get(&subscriber)
                            .and_then(|state| state.attr_values.get(&branch.attr));
                        let Some(value) = known else {
                            break branch.attr;
                        };
                        path.push(*value);
                        tree = branch.children.get(value);
                    }
                }
            };

            if self.attr_value(subscriber, attr).is_none() {
                return Lookup::Derive(attr);
            }
        }
    }

    /// Stores a new result, with edges from everything that it read.
    pub(crate) fn store(
        &mut self,
        query: QueryId,
        value: Value,
        trace: Trace<I::Notice>,
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
            self.sweeps.keep_value(*value);
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
    pub(crate) fn add_parent(&mut self, deps: impl Iterator<Item = Dep>, node: NodeId) {
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
    pub(crate) fn drop_node(&mut self, id: NodeId) {
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
            // computation is not pure: by the current facts the result is valid, but the tree no
            // longer finds it.
            self.mark_all(node.parents.as_slice().to_vec());
        }
    }
}
