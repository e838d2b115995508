//! Queries: pure functions of (view, proxy) whose results are kept with the trace of what they
//! read.

use std::any::{Any, TypeId};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::view::View;
use navarch_api::hash_index::KeyHash;

/// A derived fact or a resource: computed through a recording view and memoised; an equal new value
/// stops the update of dependents.
///
/// The key (`self`) contains no attributes of the proxy: a computation reads them through the view,
/// which records it. Computation must be pure: the same facts and attributes give the same value.
pub trait Query: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// The result. Dependents of an equal result are not recomputed.
    type Value: PartialEq + Send + Sync + 'static;

    /// Whether its results are gates regardless of the number of dependents: for a part of a table,
    /// if most changes leave most parts unchanged.
    const IS_GATE: bool = false;

    /// Computes the value, reading only through `view`.
    fn compute(&self, view: &View<'_>) -> Self::Value;

    /// Computes the value given the previous one. The result must equal that of
    /// [`compute`](Self::compute): `previous` is for incremental updates of tables that are
    /// expensive to rebuild.
    fn renew(&self, previous: &Self::Value, view: &View<'_>) -> Self::Value {
        let _ = previous;
        self.compute(view)
    }

    /// The fallback value after a panic of `compute`: `previous` is the last good value. `None`
    /// propagates the panic to the calling query.
    fn fallback(&self, previous: Option<&Self::Value>) -> Option<Self::Value> {
        let _ = previous;
        None
    }
}

/// A query whose *value* is an attribute of the proxy: results are split by the value, not by its
/// inputs.
///
/// Use it if many proxies with different raw attributes (addresses, names) have the same value (the
/// services that they serve): those proxies then share all results that depend on it.
pub trait ProxyQuery: Query<Value: Eq + Hash + Debug> {}

/// A result of any type.
pub(crate) type Value = Arc<dyn Any + Send + Sync>;

/// A type-erased query.
pub(crate) trait AnyQuery: Debug + Send + Sync {
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

/// A value of a [`ProxyQuery`], comparable without knowing its type.
pub(super) trait AnyValue: Any + Send + Sync {
    /// Whether both values have the same type and are equal.
    fn same(&self, other: &dyn AnyValue) -> bool;
    /// Hashes the value.
    fn feed(&self, state: &mut dyn Hasher);
    /// The value without its type.
    fn as_any(&self) -> &dyn Any;
    /// The value's debug form.
    fn describe(&self) -> String;
}

impl<T: Eq + Hash + Debug + Send + Sync + 'static> AnyValue for T {
    /// Whether both values have the same type and are equal.
    fn same(&self, other: &dyn AnyValue) -> bool {
        other.as_any().downcast_ref::<T>() == Some(self)
    }

    fn feed(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }
}

/// A [`ProxyQuery`]'s value behind a pointer, for use as a key.
#[derive(Clone)]
pub(super) struct DerivedValue(pub(super) Arc<dyn AnyValue>);

impl PartialEq for DerivedValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.same(&*other.0)
    }
}

impl Eq for DerivedValue {}

impl Hash for DerivedValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.feed(state);
    }
}

impl Debug for DerivedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.describe())
    }
}
