//! The number of attached routes of each listener.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::gateways::ParentObject;
use super::pair_counts::{self, CountsPart, PairCounts};
use super::parents::{ParentsOf, Target};
use super::route_kinds::{RouteKind, RouteName};
use navarch_push::name_parts::part_of;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The number of attached routes of each listener of all Gateways and ListenerSets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllAttached;

/// For some routes, the number that is attached to each listener.
type Sums = pair_counts::Sums<ParentObject, String>;
/// The number of attached routes of each listener.
pub(super) type Counts = pair_counts::Counts<String>;

/// For the routes of one part, the number that is attached to each listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedOf(u8);

/// The number of attached routes of each listener, for one part of all Gateways and ListenerSets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedIn(u8);

/// The number of attached routes of each listener of one Gateway or ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attached(ParentObject);

/// The listeners that one route is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedTo(RouteName);

/// The number of attached routes of each listener of a Gateway or ListenerSet, by name; listeners
/// without routes are omitted.
pub(super) fn attached(view: &View<'_>, of: ParentObject) -> Arc<Counts> {
    (*view.get(&Attached(of))).clone()
}

impl Query for AttachedTo {
    type Value = Vec<(ParentObject, String)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let attachments = view.get(&ParentsOf(self.0.clone()));
        let taken = attachments
            .iter()
            .filter(|attachment| attachment.denied.is_none());
        let listeners = taken.filter_map(|attachment| match &attachment.target {
            Target::Listener { of, listener, .. } => Some((of.clone(), listener.section.clone())),
            Target::Mesh(_) => None,
        });
        // A route that two references attach to the same listener counts once.
        listeners.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Query for AttachedOf {
    type Value = Arc<Sums>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut sums = Sums::new();
        for route in RouteKind::ALL
            .into_iter()
            .flat_map(|kind| kind.names_in(view, self.0))
        {
            for listener in view.get(&AttachedTo(route)).iter() {
                *sums.entry(listener.clone()).or_default() += 1;
            }
        }
        Arc::new(sums)
    }
}

impl Query for AllAttached {
    type Value = PairCounts<ParentObject, String>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        self.renew(&PairCounts::empty(), view)
    }

    fn renew(&self, previous: &Self::Value, view: &View<'_>) -> Self::Value {
        previous.updated(|part| (*view.get(&AttachedOf(part))).clone())
    }
}

impl Query for AttachedIn {
    type Value = CountsPart<ParentObject, String>;
    const IS_GATE: bool = true;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AllAttached).part(self.0)
    }
}

impl Query for Attached {
    type Value = Arc<Counts>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AttachedIn(part_of(&self.0)))
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}
