//! Garbage collection: results that no subscription depends on are dropped, and their ids reused.
//!
//! The cost of a sweep is proportional to the kept results, so it runs in slices between which the
//! engine works. First it marks all that subscriptions depend on. What computations read or create
//! in the meantime is marked, too ([`Core::touch`]), so nothing in use is dropped. Then it removes
//! unmarked results, those without dependents first: a result that is read again halfway still has
//! all of its dependencies.

mod free;
mod live;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Core;
use crate::ids::{AttrId, NodeId, SubscriberId, ValueId};
use crate::inputs::Inputs;
use navarch_tables::hash::KeyedSet;

/// The sweep in progress, and what is known for the next.
#[derive(Default)]
pub(crate) struct Sweeps {
    in_progress: Option<Box<Sweep>>,
    /// Counts the sweeps.
    number: u32,
    /// Table sizes after the last sweep.
    last: Swept,
    /// Edges of results dropped since then that are still in lists of parents.
    loose_edges: usize,
    /// Whether subscriptions have ended since the last sweep, or values were read once, so that
    /// results may be unused.
    has_orphans: bool,
}

/// The sizes that a sweep left.
#[derive(Clone, Copy, Debug, Default)]
struct Swept {
    results: usize,
    facts: usize,
    /// Values of attributes.
    values: usize,
    /// Query keys.
    queries: usize,
    /// The total duration of its slices.
    took: Duration,
}

/// The state of a sweep.
struct Sweep {
    phase: Phase,
    /// Position within the phase.
    at: usize,
    /// The results at its start.
    results: Vec<NodeId>,
    /// The subscribers at its start.
    subscribers: Vec<SubscriberId>,
    /// Marked results whose dependencies are not marked yet.
    grey: Vec<NodeId>,
    /// Whether this pass over the derived attributes marked something.
    has_found: bool,
    /// Attributes in the traces of marked results.
    attrs: KeyedSet<AttrId>,
    /// Values in these traces, and those of subscribers for these attributes.
    values: KeyedSet<ValueId>,
    /// Results to be removed, by height.
    dead: BTreeMap<u16, Vec<NodeId>>,
    /// The duration of its slices so far.
    took: Duration,
}

/// The phases of a sweep, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Marks the nodes of subscriptions.
    Published,
    /// Marks held results.
    Held,
    /// Marks the nodes of derived attributes; repeated until a pass finds nothing.
    Derived,
    /// Removes attribute values of subscribers that no trace reads.
    AttrValues,
    /// Sorts unmarked results by height.
    Sort,
    /// Removes them.
    Remove,
    /// Removes dropped results from the parent lists of their dependencies.
    Parents,
    /// Frees facts without readers.
    Facts,
    /// Frees attributes that no trace reads.
    Attributes,
    /// Frees attribute values that neither traces nor subscribers have.
    Values,
    /// Frees query keys without results.
    Queries,
    /// Truncates free entries at the ends of tables.
    Ends,
}

impl Phase {
    fn next(self) -> Option<Self> {
        Some(match self {
            Self::Published => Self::Held,
            Self::Held => Self::Derived,
            Self::Derived => Self::AttrValues,
            Self::AttrValues => Self::Sort,
            Self::Sort => Self::Remove,
            Self::Remove => Self::Parents,
            Self::Parents => Self::Facts,
            Self::Facts => Self::Attributes,
            Self::Attributes => Self::Values,
            Self::Values => Self::Queries,
            Self::Queries => Self::Ends,
            Self::Ends => return None,
        })
    }
}

/// Whether a table has grown enough since the last sweep that another pays off.
fn has_outgrown(now: usize, swept: usize) -> bool {
    now > 2 * swept + 4096
}

impl Sweeps {
    /// The number of the sweep in progress, or of the last.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Keeps an attribute that is read during a sweep.
    #[inline]
    pub(super) fn keep_attribute(&mut self, attr: AttrId) {
        if let Some(sweep) = &mut self.in_progress {
            sweep.attrs.insert(attr);
        }
    }

    /// Keeps an attribute value that is used during a sweep.
    #[inline]
    pub(super) fn keep_value(&mut self, value: ValueId) {
        if let Some(sweep) = &mut self.in_progress {
            sweep.values.insert(value);
        }
    }

    /// Counts edges of a dropped result that are still in lists of parents.
    pub(super) fn add_loose_edges(&mut self, count: usize) {
        self.loose_edges += count;
    }

    /// Notes that a subscription has ended or a value was read once, so that results may be unused.
    pub(crate) fn add_orphans(&mut self) {
        self.has_orphans = true;
    }

    /// Whether results may be unused since the last sweep.
    pub(crate) fn has_orphans(&self) -> bool {
        self.has_orphans
    }

    /// Whether a sweep is in progress.
    #[inline]
    pub(crate) fn is_sweeping(&self) -> bool {
        self.in_progress.is_some()
    }

    /// The total duration of the last sweep.
    pub(crate) fn last_duration(&self) -> Duration {
        self.last.took
    }

    /// A copy without the sweep in progress.
    pub(super) fn copy(&self) -> Self {
        Self {
            in_progress: None,
            number: self.number,
            last: self.last,
            loose_edges: self.loose_edges,
            has_orphans: self.has_orphans,
        }
    }
}

impl<I: Inputs> Core<I> {
    /// Whether enough was dropped or orphaned that a sweep pays off.
    pub(crate) fn needs_sweep(&self) -> bool {
        let last = self.sweeps.last;
        !self.sweeps.is_sweeping()
            && (has_outgrown(self.memo.len(), last.results)
                || has_outgrown(self.facts.len(), last.facts)
                || has_outgrown(self.attr_values.len(), last.values)
                || has_outgrown(self.queries.len(), last.queries)
                || self.sweeps.loose_edges > 8 * self.memo.len() + 65_536)
    }

    /// Begins a sweep, unless one is in progress. Results that lose their last subscription from
    /// now on are left to the next.
    pub(crate) fn begin_sweep(&mut self) {
        if self.sweeps.is_sweeping() {
            return;
        }

        self.sweeps.number += 1;
        self.sweeps.has_orphans = false;
        self.sweeps.loose_edges = 0;
        self.sweeps.in_progress = Some(Box::new(Sweep {
            phase: Phase::Published,
            at: 0,
            results: self.memo.ids().collect(),
            subscribers: self.subscribers.keys().copied().collect(),
            grey: Vec::new(),
            has_found: false,
            attrs: KeyedSet::default(),
            values: KeyedSet::default(),
            dead: BTreeMap::new(),
            took: Duration::ZERO,
        }));
    }

    /// Continues the sweep in progress while `may_go_on` returns true; returns true when it is
    /// complete. Must not run inside a computation.
    pub(crate) fn continue_sweep(&mut self, mut may_go_on: impl FnMut() -> bool) -> bool {
        let Some(mut sweep) = self.sweeps.in_progress.take() else {
            return true;
        };

        let begun = Instant::now();
        let mut steps = 0;
        while let Some(done) = self.sweep_step(&mut sweep) {
            steps += done;
            if steps >= self.config.steps_per_time_check {
                steps = 0;
                if !may_go_on() {
                    sweep.took += begun.elapsed();
                    self.sweeps.in_progress = Some(sweep);
                    return false;
                }
            }
        }

        self.shrink_tables();
        self.sweeps.last = Swept {
            results: self.memo.len(),
            facts: self.facts.len(),
            values: self.attr_values.len(),
            queries: self.queries.len(),
            took: sweep.took + begun.elapsed(),
        };

        true
    }

    /// Executes the next step and returns the number of steps that it counts for; `None` at the
    /// end.
    fn sweep_step(&mut self, sweep: &mut Sweep) -> Option<usize> {
        if let Some(id) = sweep.grey.pop() {
            return Some(self.mark_below(sweep, id));
        }

        let at = sweep.at;
        sweep.at += 1;
        let done = match sweep.phase {
            Phase::Published => self.mark_published(sweep, at),
            Phase::Held => self.mark_held(sweep, at),
            Phase::Derived => self.mark_derived(sweep, at),
            Phase::AttrValues => self.forget_attr_values(sweep, at),
            Phase::Sort => self.sort_dead(sweep, at),
            Phase::Remove => self.remove_dead(sweep),
            Phase::Parents => self.forget_parents(sweep, at),
            Phase::Facts => self.facts.forget_unread(at, |id| self.memo.contains(*id)),
            Phase::Attributes => self
                .attributes
                .forget_unread(at, |id| sweep.attrs.contains(&id)),
            Phase::Values => self.forget_values(sweep, at),
            Phase::Queries => self
                .queries
                .forget_unused(at, |id| self.attributes.find_derived(id).is_some()),
            Phase::Ends => self.cut_ends(),
        };

        if done.is_none() {
            sweep.at = 0;
            // A derived attribute may depend on others.
            if sweep.phase == Phase::Derived && std::mem::take(&mut sweep.has_found) {
                return Some(1);
            }
            sweep.phase = sweep.phase.next()?;
        }

        Some(done.unwrap_or(1))
    }
}
