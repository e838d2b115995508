//! How many routes each listener has: a table that is changed, not made anew, when a route comes, goes or moves, and read in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::gateways::ParentObject;
use super::parents::{ParentsOf, Target};
use super::route_kinds::{RouteKind, RouteName};
use navarch_push::name_parts::{PARTS, part_of};
use navarch_push::query::Query;
use navarch_push::view::View;

/// How many routes each listener of all Gateways and ListenerSets has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllAttached;

/// The value of [`AllAttached`].
#[derive(Clone, Debug)]
struct Table {
    /// What it was made of.
    sums: Vec<Arc<Sums>>,
    /// By who has the listeners, in parts.
    counts: Vec<Arc<OrdMap<ParentObject, Arc<Counts>>>>,
}

/// How many of some routes each listener has.
type Sums = BTreeMap<(ParentObject, String), i32>;
/// How many routes each listener has.
pub(super) type Counts = BTreeMap<String, i32>;

/// How many of the routes of one part each listener has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedOf(u8);

/// How many routes each listener of one part of all Gateways and ListenerSets has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedIn(u8);

/// How many routes each listener of one Gateway or ListenerSet has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attached(ParentObject);

/// The listeners that one route is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedTo(RouteName);

/// How many routes each listener of a Gateway or ListenerSet has, by name; those that have none are left out.
pub(super) fn attached(view: &View<'_>, of: ParentObject) -> Arc<Counts> {
    (*view.get(&Attached(of))).clone()
}

impl Query for AttachedTo {
    type Value = Vec<(ParentObject, String)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let attachments = view.get(&ParentsOf(self.0.clone()));
        let taken = attachments.iter().filter(|attachment| attachment.denied.is_none());
        let listeners = taken.filter_map(|attachment| match &attachment.target {
            Target::Listener { of, listener, .. } => Some((of.clone(), listener.section.clone())),
            Target::Mesh(_) => None,
        });
        // One that two references attach to the same listener counts once.
        listeners.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Query for AttachedOf {
    type Value = Arc<Sums>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut sums = Sums::new();
        for route in RouteKind::ALL.into_iter().flat_map(|kind| kind.names_in(view, self.0)) {
            for listener in view.get(&AttachedTo(route)).iter() {
                *sums.entry(listener.clone()).or_default() += 1;
            }
        }
        Arc::new(sums)
    }
}

impl Table {
    fn empty() -> Self {
        let parts = usize::from(PARTS);
        Self { sums: vec![Arc::default(); parts], counts: vec![Arc::default(); parts] }
    }

    /// Brings the table up to date. Costs what differs.
    fn updated(&self, view: &View<'_>) -> Self {
        let sums = (0..PARTS).map(|part| (*view.get(&AttachedOf(part))).clone()).collect();
        let mut new = Self { sums, counts: self.counts.clone() };
        let mut changes: BTreeMap<&(ParentObject, String), i32> = BTreeMap::new();
        for (before, now) in self.sums.iter().zip(&new.sums).filter(|(before, now)| !Arc::ptr_eq(before, now)) {
            before.iter().for_each(|(listener, count)| *changes.entry(listener).or_default() -= count);
            now.iter().for_each(|(listener, count)| *changes.entry(listener).or_default() += count);
        }
        for ((of, section), change) in changes.into_iter().filter(|(_, change)| *change != 0) {
            let Some(part) = new.counts.get_mut(usize::from(part_of(of))) else { continue };
            let parents = Arc::make_mut(part);
            let mut counts = parents.get(of).map(|counts| Counts::clone(counts)).unwrap_or_default();
            let count = counts.get(section).copied().unwrap_or_default() + change;
            match count {
                0 => _ = counts.remove(section),
                count => _ = counts.insert(section.clone(), count),
            }
            match counts.is_empty() {
                true => _ = parents.remove(of),
                false => _ = parents.insert(of.clone(), Arc::new(counts)),
            }
        }
        new
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        // What it was made of says nothing more.
        self.counts == other.counts
    }
}

impl Query for AllAttached {
    type Value = Table;

    fn compute(&self, view: &View<'_>) -> Table {
        Table::empty().updated(view)
    }

    fn renew(&self, previous: &Table, view: &View<'_>) -> Table {
        previous.updated(view)
    }
}

impl Query for AttachedIn {
    type Value = Arc<OrdMap<ParentObject, Arc<Counts>>>;
    const IS_GATE: bool = true;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AllAttached).counts.get(usize::from(self.0)).cloned().unwrap_or_default()
    }
}

impl Query for Attached {
    type Value = Arc<Counts>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AttachedIn(part_of(&self.0))).get(&self.0).cloned().unwrap_or_default()
    }
}
