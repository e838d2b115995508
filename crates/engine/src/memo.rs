//! The memo table: kept results with their traces.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::deps::{Dep, Deps};
use super::ids::{AttrId, NodeId, QueryId, SubscriberId, ValueId};
use super::node_list::NodeList;
use super::query::Value;
use navarch_tables::hash::KeyedMap;

/// All kept results.
#[derive(Clone)]
pub(crate) struct Memo<T> {
    /// Boxed, since a table that grows by doubling has room for twice as many.
    nodes: KeyedMap<NodeId, Box<Node<T>>>,
    /// The id of the next new result: ids are never used again.
    next: u64,
}

/// A kept result with its trace.
#[derive(Clone)]
pub(crate) struct Node<T> {
    pub(crate) query: QueryId,
    pub(crate) value: Value,
    /// Its dependencies, in the order of reading.
    pub(crate) deps: Deps,
    /// Attributes of the subscriber that were read, including those of children, with the values,
    /// in order of reading.
    pub(crate) attrs: Arc<[(AttrId, ValueId)]>,
    /// Results that read this one. May contain dropped nodes and nodes that no longer read it.
    pub(crate) parents: NodeList,
    /// `None` until one of its fields is set.
    pub(crate) rare: Option<Box<Rare<T>>>,
    /// Revision at which the value last changed.
    pub(crate) changed_at: u64,
    /// Revision at which the value was last verified.
    pub(crate) verified_at: u64,
    /// Greater than the height of all results that it read. Never lowered, so it may be greater
    /// than necessary.
    pub(crate) height: u16,
    /// Something below may have changed since.
    pub(crate) dirty: bool,
    /// It is dirty and its dependents are not marked: see `core/gates.rs`.
    pub(crate) gated: bool,
    /// The last sweep that kept it: see `core/sweep.rs`.
    pub(crate) sweep: u32,
}

/// Fields that few results use.
#[derive(Clone)]
pub(crate) struct Rare<T> {
    /// Subscriptions that show this result.
    pub(crate) subscribers: BTreeSet<(SubscriberId, T)>,
    /// Subscribers for which this result is an attribute.
    pub(crate) watchers: BTreeSet<(SubscriberId, AttrId)>,
    /// The panic message, if this value is a fallback.
    pub(crate) fault: Option<Arc<str>>,
    /// Remarks of the computation on inputs that it ignores.
    pub(crate) remarks: Vec<Arc<str>>,
}

impl<T: Copy> Memo<T> {
    /// An id for a new result.
    pub(crate) fn new_id(&mut self) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        id
    }

    /// Stores a result under a new id.
    pub(crate) fn insert(&mut self, id: NodeId, node: Node<T>) {
        self.nodes.insert(id, Box::new(node));
    }

    /// Removes a result. Other results keep their edges to it.
    pub(crate) fn remove(&mut self, id: NodeId) -> Option<Box<Node<T>>> {
        self.nodes.remove(&id)
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Node<T>> {
        self.nodes.get(&id).map(|node| &**node)
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node<T>> {
        self.nodes.get_mut(&id).map(|node| &mut **node)
    }

    pub(crate) fn contains(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Whether a kept result has read this.
    pub(crate) fn reads(&self, id: NodeId, dep: Dep) -> bool {
        self.get(id).is_some_and(|node| node.deps.contains(dep))
    }

    /// The number of results.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The ids of all results, in any order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// All results, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node<T>)> {
        self.nodes.iter().map(|(id, node)| (*id, &**node))
    }

    /// Frees memory of a table that was much larger.
    pub(crate) fn shrink(&mut self) {
        let room = 2 * self.nodes.len() + 1024;
        self.nodes.shrink_to(room);
    }
}

impl<T: Copy> Node<T> {
    /// The subscriptions that show this result.
    pub(crate) fn subscribers(&self) -> impl Iterator<Item = (SubscriberId, T)> {
        self.rare
            .iter()
            .flat_map(|rare| rare.subscribers.iter().copied())
    }

    /// Whether a subscription shows this result.
    pub(crate) fn is_published(&self) -> bool {
        self.rare
            .as_ref()
            .is_some_and(|rare| !rare.subscribers.is_empty())
    }

    /// The subscribers for which this result is an attribute.
    pub(crate) fn watchers(&self) -> impl Iterator<Item = SubscriberId> {
        self.rare
            .iter()
            .flat_map(|rare| rare.watchers.iter().map(|(subscriber, _)| *subscriber))
    }

    /// Whether this result is an attribute of a subscriber.
    pub(crate) fn is_watched(&self) -> bool {
        self.rare
            .as_ref()
            .is_some_and(|rare| !rare.watchers.is_empty())
    }

    /// The panic message, if the value is a fallback.
    pub(crate) fn fault(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.fault.as_ref()
    }

    /// Remarks of the computation on inputs that it ignores.
    pub(crate) fn remarks(&self) -> &[Arc<str>] {
        self.rare
            .as_ref()
            .map(|rare| &*rare.remarks)
            .unwrap_or_default()
    }

    pub(crate) fn rare_mut(&mut self) -> &mut Rare<T> {
        self.rare.get_or_insert_default()
    }

    /// Sets the fields that only computations with remarks or a panic set.
    pub(crate) fn set_faults(&mut self, fault: Option<Arc<str>>, remarks: Vec<Arc<str>>) {
        if fault.is_some() || !remarks.is_empty() || self.rare.is_some() {
            let rare = self.rare_mut();
            rare.fault = fault;
            rare.remarks = remarks;
        }
    }
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self {
            nodes: KeyedMap::default(),
            next: 0,
        }
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self {
            subscribers: BTreeSet::new(),
            watchers: BTreeSet::new(),
            fault: None,
            remarks: Vec::new(),
        }
    }
}
