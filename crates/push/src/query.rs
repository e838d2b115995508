//! Queries: pure functions of (view, proxy) whose results are kept with the trace of what they
//! read.

use std::fmt::Debug;
use std::hash::Hash;

use super::view::View;

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
