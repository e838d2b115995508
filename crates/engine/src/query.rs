//! Queries: pure functions of the inputs and a subscriber whose results are kept with the trace of
//! what they read.

use std::any::{Any, TypeId};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::inputs::Inputs;
use super::view::View;
use navarch_tables::hash_index::KeyHash;

/// What names a result: a query. It contains no attributes of the subscriber: computations read
/// those through the view, which records it.
pub trait Query: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<Q: Clone + Eq + Hash + Debug + Send + Sync + 'static> Query for Q {}

/// How queries of a type are computed from inputs.
///
/// A computation reads only through the view, and must be pure: the same facts and attributes give
/// the same value.
pub trait Computes<Q: Query>: Inputs {
    /// The result. Dependents of an equal result are not recomputed.
    type Value: PartialEq + Send + Sync + 'static;

    /// Whether the results are gates regardless of the number of dependents: for a part of a table,
    /// if most changes leave most parts unchanged.
    const IS_GATE: bool = false;

    /// Computes the value, reading only through `view`.
    fn compute(query: &Q, view: &View<'_, Self>) -> Self::Value;

    /// Computes the value given the previous one. The result must equal that of
    /// [`compute`](Self::compute): `previous` is for incremental updates of tables that are
    /// expensive to rebuild.
    fn renew(query: &Q, previous: &Self::Value, view: &View<'_, Self>) -> Self::Value {
        let _ = previous;
        Self::compute(query, view)
    }

    /// The fallback value after a panic of `compute`: `previous` is the last good value. `None`
    /// propagates the panic to the calling query.
    fn fallback(query: &Q, previous: Option<&Self::Value>) -> Option<Self::Value> {
        let _ = (query, previous);
        None
    }
}

/// A result of any type.
pub(crate) type Value = Arc<dyn Any + Send + Sync>;

/// A type-erased query.
pub(crate) trait AnyQuery<I: Inputs>: Debug + Send + Sync {
    /// Computes the value; `previous` is the previous value.
    fn compute(&self, previous: Option<&Value>, view: &View<'_, I>) -> Value;
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

/// The hash of a query's type and key.
pub(crate) fn key_hash<Q: Query>(query: &Q) -> KeyHash {
    KeyHash::of(&(TypeId::of::<Q>(), query))
}

impl<I: Computes<Q>, Q: Query> AnyQuery<I> for Q {
    fn compute(&self, previous: Option<&Value>, view: &View<'_, I>) -> Value {
        match previous.and_then(|value| value.downcast_ref::<I::Value>()) {
            Some(previous) => Arc::new(I::renew(self, previous, view)),
            None => Arc::new(I::compute(self, view)),
        }
    }

    fn is_gate(&self) -> bool {
        I::IS_GATE
    }

    fn same(&self, a: &Value, b: &Value) -> bool {
        matches!(
            (a.downcast_ref::<I::Value>(), b.downcast_ref::<I::Value>()),
            (Some(a), Some(b)) if a == b
        )
    }

    fn fallback(&self, previous: Option<&Value>) -> Option<Value> {
        let previous = previous.and_then(|value| value.downcast_ref::<I::Value>());
        I::fallback(self, previous).map(|value| Arc::new(value) as Value)
    }

    fn key_hash(&self) -> KeyHash {
        key_hash(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The value of a derived attribute, comparable without knowing its type.
pub(crate) trait AnyValue: Any + Send + Sync {
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

/// The value of a derived attribute behind a pointer, for use as a key.
#[derive(Clone)]
pub(crate) struct DerivedValue(pub(crate) Arc<dyn AnyValue>);

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
