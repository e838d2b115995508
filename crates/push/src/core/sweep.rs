//! Forgetting: what no subscription rests on goes, and the names of what went are given again.
//!
//! A sweep costs what is kept, so it is done in slices between which the engine works. First it marks what subscriptions
//! rest on. What computations read or make in the meantime is marked as they do ([`Core::touch`]), so nothing goes that
//! anything rests on. Then it removes the results that are not marked, those first that others do not rest on: one that is
//! read again half way still has all that it was computed from.

mod free;
mod live;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Core;
use crate::memo::{AttrId, NodeId, ValueId};
use navarch_api::hash::KeyedSet;

/// Steps between two checks of the time slice, at about a microsecond each. Tests check after each step.
const STEPS_PER_TIME_CHECK: usize = if cfg!(test) { 1 } else { 64 };

/// What a sweep left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swept {
    /// Results.
    results: usize,
    /// Facts.
    facts: usize,
    /// Answers.
    values: usize,
    /// Query keys.
    queries: usize,
    /// How long all its slices took.
    took: Duration,
}

/// A sweep under way.
pub(super) struct Sweep {
    phase: Phase,
    /// How far the phase has got in what it goes through.
    at: usize,
    /// The results that were there when it began.
    results: Vec<NodeId>,
    /// The proxies that were there when it began.
    proxies: Vec<u64>,
    /// Results that are marked, while what they rest on is not.
    grey: Vec<NodeId>,
    /// Whether this pass over the derived answers marked something.
    has_found: bool,
    /// Questions in the traces of what is marked.
    attrs: KeyedSet<AttrId>,
    /// Answers in these traces, and those of proxies to these questions.
    values: KeyedSet<ValueId>,
    /// Results to be removed, by height.
    dead: BTreeMap<u16, Vec<NodeId>>,
    /// How long its slices took so far.
    took: Duration,
}

/// What a sweep does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Marks what subscriptions show.
    Shown,
    /// Marks what is worked out of subscriptions that are not answered.
    Prepared,
    /// Marks what derived answers come from, again until a pass finds nothing.
    Derived,
    /// Takes answers from proxies that no trace asks for.
    Answers,
    /// Sorts results that are not marked by height.
    Sort,
    /// Removes them.
    Remove,
    /// Takes removed results out of the lists of those that they read.
    Parents,
    /// Frees facts that nothing reads.
    Facts,
    /// Frees questions that no trace asks.
    Questions,
    /// Frees answers that neither traces nor proxies give.
    Values,
    /// Frees query keys without results.
    Queries,
    /// Cuts free places off the ends of tables.
    Ends,
}

impl Phase {
    /// What comes after it.
    fn next(self) -> Option<Self> {
        Some(match self {
            Self::Shown => Self::Prepared,
            Self::Prepared => Self::Derived,
            Self::Derived => Self::Answers,
            Self::Answers => Self::Sort,
            Self::Sort => Self::Remove,
            Self::Remove => Self::Parents,
            Self::Parents => Self::Facts,
            Self::Facts => Self::Questions,
            Self::Questions => Self::Values,
            Self::Values => Self::Queries,
            Self::Queries => Self::Ends,
            Self::Ends => return None,
        })
    }
}

/// Whether a table outgrew what the last sweep left of it so far that a sweep pays.
fn outgrew(now: usize, swept: usize) -> bool {
    now > 2 * swept + 4096
}

impl Core {
    /// Whether enough was forgotten or orphaned that a sweep pays.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.sweeping.is_none()
            && (outgrew(self.nodes.len(), self.swept.results)
                || outgrew(self.fact_ids.len(), self.swept.facts)
                || outgrew(self.value_ids.len(), self.swept.values)
                || outgrew(self.queries.len() - self.free_queries.len(), self.swept.queries)
                || self.loose_edges > 8 * self.nodes.len() + 65_536)
    }

    /// Whether a sweep is under way.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweeping.is_some()
    }

    /// How long the last sweep took, all its slices together.
    pub(crate) fn last_sweep(&self) -> Duration {
        self.swept.took
    }

    /// Begins a sweep, unless one is under way. What loses its last subscription from now on is left to the next.
    pub(crate) fn begin_sweep(&mut self) {
        if self.sweeping.is_some() {
            return;
        }
        self.sweep_number += 1;
        self.has_orphans = false;
        self.loose_edges = 0;
        self.sweeping = Some(Box::new(Sweep {
            phase: Phase::Shown,
            at: 0,
            results: self.nodes.keys().copied().collect(),
            proxies: self.proxies.keys().copied().collect(),
            grey: Vec::new(),
            has_found: false,
            attrs: KeyedSet::default(),
            values: KeyedSet::default(),
            dead: BTreeMap::new(),
            took: Duration::ZERO,
        }));
    }

    /// Goes on with the sweep under way as long as `may_go_on` says; true when none is under way any more. Must not run
    /// inside a computation.
    pub(crate) fn sweep_on(&mut self, mut may_go_on: impl FnMut() -> bool) -> bool {
        let Some(mut sweep) = self.sweeping.take() else { return true };
        let begun = Instant::now();
        let mut steps = 0;
        while let Some(done) = self.sweep_step(&mut sweep) {
            steps += done;
            if steps >= STEPS_PER_TIME_CHECK {
                steps = 0;
                if !may_go_on() {
                    sweep.took += begun.elapsed();
                    self.sweeping = Some(sweep);
                    return false;
                }
            }
        }
        self.give_room_back();
        self.swept = Swept {
            results: self.nodes.len(),
            facts: self.fact_ids.len(),
            values: self.value_ids.len(),
            queries: self.queries.len() - self.free_queries.len(),
            took: sweep.took + begun.elapsed(),
        };
        true
    }

    /// Drops every result that no subscription rests on, and every question, answer, fact and query key that only such
    /// results had, at once.
    #[cfg(test)]
    pub(crate) fn sweep(&mut self) {
        self.sweep_on(|| true);
        self.begin_sweep();
        self.sweep_on(|| true);
    }

    /// Does the next thing, and tells how many steps it counts for; `None` at the end.
    fn sweep_step(&mut self, sweep: &mut Sweep) -> Option<usize> {
        if let Some(id) = sweep.grey.pop() {
            return Some(self.mark_below(sweep, id));
        }
        let at = sweep.at;
        sweep.at += 1;
        let done = match sweep.phase {
            Phase::Shown => self.mark_shown(sweep, at),
            Phase::Prepared => self.mark_prepared(sweep, at),
            Phase::Derived => self.mark_derived(sweep, at),
            Phase::Answers => self.forget_answers(sweep, at),
            Phase::Sort => self.sort_dead(sweep, at),
            Phase::Remove => self.remove_dead(sweep),
            Phase::Parents => self.forget_parents(sweep, at),
            Phase::Facts => self.forget_fact(at),
            Phase::Questions => self.forget_attr(sweep, at),
            Phase::Values => self.forget_values(sweep, at),
            Phase::Queries => self.forget_query(at),
            Phase::Ends => self.cut_ends(),
        };
        if done.is_none() {
            sweep.at = 0;
            // A derived answer may rest on others.
            if sweep.phase == Phase::Derived && std::mem::take(&mut sweep.has_found) {
                return Some(1);
            }
            sweep.phase = sweep.phase.next()?;
        }
        Some(done.unwrap_or(1))
    }
}
