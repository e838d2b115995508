//! The memo table: nodes (kept results), and the facts below them. Changed facts mark nodes dirty through the parents lists,
//! never by search.

use std::any::{Any, TypeId};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use super::attr::{Attr, AttrValue};
use super::fact::FactKey;
use super::notice::Notice;
use super::query::Query;
use super::remark_list::RemarkList;
use super::view::View;
use navarch_api::hash::{KeyedMap, KeyedSet};

/// Names a kept result. Never used again after the node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u64);

/// Names an interned query key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueryId(pub(super) usize);

/// Names an interned fact key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FactId(pub(super) usize);

/// Names an interned question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AttrId(pub(super) usize);

/// Names an interned answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ValueId(pub(super) usize);

/// A result of any type.
pub(super) type Value = Arc<dyn Any + Send + Sync>;

/// What a result was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Dep {
    /// A fact of the snapshot.
    Fact(FactId),
    /// Another result.
    Node(NodeId),
}

/// A kept result with its trace.
#[derive(Clone)]
pub(super) struct Node {
    /// The query that it answers.
    pub(super) query: QueryId,
    pub(super) value: Value,
    /// What was read, in the order of reading.
    pub(super) deps: Deps,
    /// What was asked of the proxy and answered, in the order of asking, children's included.
    pub(super) attrs: Arc<[(AttrId, ValueId)]>,
    /// Results that read this one. May name gone nodes and nodes that no longer read it.
    pub(super) parents: Vec<NodeId>,
    /// What few results have.
    pub(super) rare: Option<Box<Rare>>,
    /// Revision at which the value last changed.
    pub(super) changed_at: u64,
    /// Revision at which the value was last known to be right.
    pub(super) verified_at: u64,
    /// Higher than all results that it read. Never lowered, so it may be higher than need be.
    pub(super) height: u16,
    /// Something below may have changed since.
    pub(super) dirty: bool,
    /// It is dirty and what rests on it is not marked: see `core/gates.rs`.
    pub(super) gated: bool,
    /// The last sweep that left it: see `core/sweep.rs`.
    pub(super) sweep: u32,
    /// What the computation could not make use of.
    pub(super) remarks: Arc<[Arc<str>]>,
}

/// What few results have: of those that each resource is, none.
#[derive(Clone, Default)]
pub(super) struct Rare {
    /// Subscriptions that show this result.
    pub(super) subscribers: BTreeSet<(u64, super::resource::ResourceType)>,
    /// Proxies for which this result is an attribute.
    pub(super) watchers: BTreeSet<(u64, AttrId)>,
    /// Message of the panic that this value stands in for.
    pub(super) fault: Option<Arc<str>>,
}

static NOTHING_RARE: Rare = Rare { subscribers: BTreeSet::new(), watchers: BTreeSet::new(), fault: None };

impl Node {
    /// What it has that few have.
    pub(super) fn rare(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&NOTHING_RARE)
    }

    /// The same, to be changed.
    pub(super) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Sets the message of the panic that its value stands in for.
    pub(super) fn set_fault(&mut self, fault: Option<Arc<str>>) {
        if fault.is_some() || self.rare.is_some() {
            self.rare_mut().fault = fault;
        }
    }
}

/// A list of [`Dep`]s in half the room: a resource of ambient mode has a dozen, and there are as many of these as workloads.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Deps(Arc<[u64]>);

impl Deps {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one is among them.
    pub(super) fn contains(&self, dep: Dep) -> bool {
        self.0.contains(&dep.packed())
    }

    /// All in their order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Dep> {
        self.0.iter().map(|packed| Dep::unpacked(*packed))
    }
}

impl From<Vec<Dep>> for Deps {
    fn from(deps: Vec<Dep>) -> Self {
        Self(deps.into_iter().map(Dep::packed).collect())
    }
}

impl Dep {
    /// As one number: ids are counts, and far from 2^63.
    fn packed(self) -> u64 {
        match self {
            Self::Fact(FactId(id)) => (id as u64) << 1,
            Self::Node(NodeId(id)) => id << 1 | 1,
        }
    }

    fn unpacked(packed: u64) -> Self {
        let id = packed >> 1;
        match packed & 1 {
            0 => Self::Fact(FactId(usize::try_from(id).expect("it was made of one"))),
            _ => Self::Node(NodeId(id)),
        }
    }
}

/// A fact that something has read.
#[derive(Clone)]
pub(super) struct Fact {
    pub(super) key: FactKey,
    /// Revision at which it last changed, 0 if not since it was first read.
    pub(super) changed_at: u64,
    /// Results that read it; as [`Node::parents`].
    pub(super) parents: Vec<NodeId>,
}

/// A question: plain, or the value of a proxy query.
#[derive(Clone)]
pub(super) enum AttrDef {
    /// Answered by the proxy itself.
    Plain(Attr),
    /// Answered by this query's value.
    Derived {
        query: QueryId,
        /// Turns the query's result into an answer.
        answer: fn(&Value) -> AttrValue,
    },
}

/// The trace being recorded for one computation.
#[derive(Default)]
pub(super) struct Frame {
    /// Reads in order.
    pub(super) deps: Vec<Dep>,
    /// The same as a set.
    pub(super) seen: KeyedSet<Dep>,
    /// Questions in order.
    pub(super) attrs: Vec<(AttrId, ValueId)>,
    /// The questions as a set.
    asked: KeyedSet<AttrId>,
    /// What could not be made use of.
    pub(super) remarks: RemarkList,
    /// What is counted.
    pub(super) notices: Vec<Notice>,
}

/// Why there is no value: a computation panicked and had no stand-in.
pub(super) struct Failure {
    /// What was thrown.
    pub(super) panic: Box<dyn Any + Send>,
    /// What was read until then. It belongs to the trace of whoever goes on failing for it.
    pub(super) frame: Frame,
}

/// By query type: the names of its keys.
pub(super) type KeyTables = KeyedMap<TypeId, Box<dyn KeyTable>>;

/// The names of a query type's keys, without the type.
pub(super) trait KeyTable: Send {
    /// Another one like it.
    fn copy(&self) -> Box<dyn KeyTable>;
    /// The table, to be asked for its type.
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<Q: Query> KeyTable for KeyedMap<Q, QueryId> {
    fn copy(&self) -> Box<dyn KeyTable> {
        Box::new(self.clone())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// A query without its type.
pub(super) trait AnyQuery: Debug + Send + Sync {
    /// Computes the value; `previous` is the one before.
    fn compute(&self, previous: Option<&Value>, view: &View<'_>) -> Value;
    /// Whether marking waits at its results.
    fn is_gate(&self) -> bool;
    /// Whether two values are equal.
    fn same(&self, a: &Value, b: &Value) -> bool;
    /// The stand-in after a panic.
    fn rescue(&self, previous: Option<&Value>) -> Option<Value>;
    /// Removes the key from the interning tables.
    fn forget(&self, tables: &mut KeyTables);
}

impl<Q: Query> AnyQuery for Q {
    fn compute(&self, previous: Option<&Value>, view: &View<'_>) -> Value {
        match previous.and_then(|value| value.downcast_ref::<Q::Value>()) {
            Some(previous) => Arc::new(self.renew(previous, view)),
            None => Arc::new(Query::compute(self, view)),
        }
    }

    fn is_gate(&self) -> bool {
        Q::IS_GATE
    }

    fn same(&self, a: &Value, b: &Value) -> bool {
        matches!((a.downcast_ref::<Q::Value>(), b.downcast_ref::<Q::Value>()), (Some(a), Some(b)) if a == b)
    }

    fn rescue(&self, previous: Option<&Value>) -> Option<Value> {
        let previous = previous.and_then(|value| value.downcast_ref::<Q::Value>());
        Query::rescue(self, previous).map(|value| Arc::new(value) as Value)
    }

    fn forget(&self, tables: &mut KeyTables) {
        if let Some(table) =
            tables.get_mut(&TypeId::of::<Q>()).and_then(|t| t.as_any().downcast_mut::<KeyedMap<Q, QueryId>>())
        {
            table.remove(self);
            // Streams with many names may have gone. Halving pays for the move.
            if table.capacity() > 4 * table.len() + 4096 {
                table.shrink_to(2 * table.len());
            }
        }
    }
}

impl Frame {
    /// Notes a read.
    pub(super) fn read(&mut self, dep: Dep) {
        if self.seen.insert(dep) {
            self.deps.push(dep);
        }
    }

    /// Notes a question and its answer.
    pub(super) fn ask(&mut self, attr: AttrId, value: ValueId) {
        if self.asked.insert(attr) {
            self.attrs.push((attr, value));
        }
    }

    /// Puts questions before all others, as when the result will be one that rests on their answers.
    pub(super) fn ask_first(&mut self, attrs: &[(AttrId, ValueId)]) {
        let later = std::mem::replace(&mut self.attrs, attrs.to_vec());
        self.asked = attrs.iter().map(|(attr, _)| *attr).collect();
        for (attr, value) in later {
            self.ask(attr, value);
        }
    }

    /// Takes over all of another trace, as when its computation failed inside this one.
    pub(super) fn absorb(&mut self, other: Self) {
        for dep in other.deps {
            self.read(dep);
        }
        for (attr, value) in other.attrs {
            self.ask(attr, value);
        }
        self.remarks.extend(other.remarks);
        self.notices.extend(other.notices);
    }
}

impl Failure {
    /// A failure of the engine's own, before anything was read.
    pub(super) fn new(message: &'static str) -> Self {
        Self { panic: Box::new(message), frame: Frame::default() }
    }

    /// What the panic said.
    pub(super) fn text(&self) -> Arc<str> {
        panic_text(&*self.panic)
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Arc::from(text.unwrap_or("panic without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_dependencies_are_what_they_were() {
        let last = (1 << 63) - 1;
        let all = [Dep::Fact(FactId(0)), Dep::Node(NodeId(0)), Dep::Node(NodeId(last)), Dep::Fact(FactId(7))];
        let deps = Deps::from(all.to_vec());
        assert_eq!(deps.iter().collect::<Vec<_>>(), all);
        assert!(all.iter().all(|dep| deps.contains(*dep)) && !deps.contains(Dep::Node(NodeId(7))));
        assert_eq!(deps.len(), all.len());
    }
}
