//! The memo table: nodes (kept results), and the facts below them. Changed facts mark nodes dirty
//! through the parents lists, never by search.

use std::any::{Any, TypeId};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use super::attr::{Attr, AttrValue};
use super::deps::{Dep, Deps};
use super::fact::FactKey;
use super::node_list::NodeList;
use super::notice::Notice;
use super::query::Query;
use super::remark_list::RemarkList;
use super::view::View;
use navarch_api::hash::KeyedSet;
use navarch_api::hash_index::KeyHash;

/// The id of a kept result. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u64);

/// The id of an interned query key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueryId(pub(super) usize);

/// The id of an interned fact key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FactId(pub(super) usize);

/// The id of an interned attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AttrId(pub(super) usize);

/// The id of an interned answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ValueId(pub(super) usize);

/// A result of any type.
pub(super) type Value = Arc<dyn Any + Send + Sync>;

/// A kept result with its trace.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) query: QueryId,
    pub(super) value: Value,
    /// Its dependencies, in the order of reading.
    pub(super) deps: Deps,
    /// Attributes of the proxy that were read, including those of children, with the answers, in
    /// order of reading.
    pub(super) attrs: Arc<[(AttrId, ValueId)]>,
    /// Results that read this one. May contain dropped nodes and nodes that no longer read it.
    pub(super) parents: NodeList,
    pub(super) rare: Option<Box<Rare>>,
    /// Revision at which the value last changed.
    pub(super) changed_at: u64,
    /// Revision at which the value was last verified.
    pub(super) verified_at: u64,
    /// Greater than the height of all results that it read. Never lowered, so it may be greater
    /// than necessary.
    pub(super) height: u16,
    /// Something below may have changed since.
    pub(super) dirty: bool,
    /// It is dirty and its dependents are not marked: see `core/gates.rs`.
    pub(super) gated: bool,
    /// The last sweep that kept it: see `core/sweep.rs`.
    pub(super) sweep: u32,
}

/// Fields that few results use, and no single resources.
#[derive(Clone, Default)]
pub(super) struct Rare {
    /// Subscriptions that show this result.
    pub(super) subscribers: BTreeSet<(u64, super::resource::ResourceType)>,
    /// Proxies for which this result is an attribute.
    pub(super) watchers: BTreeSet<(u64, AttrId)>,
    /// The panic message, if this value is a fallback.
    pub(super) fault: Option<Arc<str>>,
    /// Remarks of the computation on invalid configuration.
    pub(super) remarks: Vec<Arc<str>>,
}

static EMPTY_RARE: Rare = Rare {
    subscribers: BTreeSet::new(),
    watchers: BTreeSet::new(),
    fault: None,
    remarks: Vec::new(),
};

impl Node {
    pub(super) fn rare(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&EMPTY_RARE)
    }

    pub(super) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Sets the fields that only computations with invalid configuration or a panic set.
    pub(super) fn set_faults(&mut self, fault: Option<Arc<str>>, remarks: Vec<Arc<str>>) {
        if fault.is_some() || !remarks.is_empty() || self.rare.is_some() {
            let rare = self.rare_mut();
            rare.fault = fault;
            rare.remarks = remarks;
        }
    }
}

/// A fact that something has read.
#[derive(Clone)]
pub(super) struct Fact {
    pub(super) key: FactKey,
    /// Revision of the last change; 0 if none since the first read.
    pub(super) changed_at: u64,
    /// Results that read it; as [`Node::parents`].
    pub(super) parents: NodeList,
}

/// An attribute of a proxy: plain, or the value of a proxy query.
#[derive(Clone)]
pub(super) enum AttrDef {
    /// A property of the proxy itself.
    Plain(Attr),
    /// The value of a query.
    Derived {
        query: QueryId,
        /// Converts the query's result to an answer.
        answer: fn(&Value) -> AttrValue,
    },
}

/// The trace being recorded for one computation.
#[derive(Default)]
pub(super) struct Frame {
    /// Dependencies in order of reading.
    pub(super) deps: Vec<Dep>,
    /// The same dependencies as a set.
    pub(super) seen: KeyedSet<Dep>,
    /// Attributes in order of reading.
    pub(super) attrs: Vec<(AttrId, ValueId)>,
    seen_attrs: KeyedSet<AttrId>,
    /// Remarks on invalid configuration.
    pub(super) remarks: RemarkList,
    pub(super) notices: Vec<Notice>,
}

/// A computation that panicked without a fallback value.
pub(super) struct Failure {
    pub(super) panic: Box<dyn Any + Send>,
    /// The reads until then. They belong to the trace of the caller, which fails too.
    pub(super) frame: Frame,
}

/// A type-erased query.
pub(super) trait AnyQuery: Debug + Send + Sync {
    /// Computes the value; `previous` is the previous value.
    fn compute(&self, previous: Option<&Value>, view: &View<'_>) -> Value;
    /// Whether its results are gates.
    fn is_gate(&self) -> bool;
    /// Whether two values are equal.
    fn same(&self, a: &Value, b: &Value) -> bool;
    /// The fallback value after a panic.
    fn fallback(&self, previous: Option<&Value>) -> Option<Value>;
    /// The hash of type and key.
    fn key_hash(&self) -> KeyHash;
    /// For comparison with a query of a known type.
    fn as_any(&self) -> &dyn Any;
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
        matches!(
            (a.downcast_ref::<Q::Value>(), b.downcast_ref::<Q::Value>()),
            (Some(a), Some(b)) if a == b
        )
    }

    fn fallback(&self, previous: Option<&Value>) -> Option<Value> {
        let previous = previous.and_then(|value| value.downcast_ref::<Q::Value>());
        Query::fallback(self, previous).map(|value| Arc::new(value) as Value)
    }

    fn key_hash(&self) -> KeyHash {
        KeyHash::of(&(TypeId::of::<Q>(), self))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Frame {
    pub(super) fn read(&mut self, dep: Dep) {
        if self.seen.insert(dep) {
            self.deps.push(dep);
        }
    }

    /// Records the read of an attribute and its answer.
    pub(super) fn read_attribute(&mut self, attr: AttrId, value: ValueId) {
        if self.seen_attrs.insert(attr) {
            self.attrs.push((attr, value));
        }
    }

    /// Puts attributes before all others, if the result depends on their answers anyway.
    pub(super) fn prepend_attributes(&mut self, attrs: &[(AttrId, ValueId)]) {
        let later = std::mem::replace(&mut self.attrs, attrs.to_vec());
        self.seen_attrs = attrs.iter().map(|(attr, _)| *attr).collect();
        for (attr, value) in later {
            self.read_attribute(attr, value);
        }
    }

    /// Merges another trace, as when its computation failed inside this one.
    pub(super) fn absorb(&mut self, other: Self) {
        for dep in other.deps {
            self.read(dep);
        }
        for (attr, value) in other.attrs {
            self.read_attribute(attr, value);
        }
        self.remarks.extend(other.remarks);
        self.notices.extend(other.notices);
    }
}

impl Failure {
    /// An internal failure of the engine, before any read.
    pub(super) fn new(message: &'static str) -> Self {
        Self {
            panic: Box::new(message),
            frame: Frame::default(),
        }
    }

    /// The panic message.
    pub(super) fn text(&self) -> Arc<str> {
        panic_text(&*self.panic)
    }
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Arc::from(text.unwrap_or("panic without a message"))
}
