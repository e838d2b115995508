//! What results count as long as they are in force.
//!
//! Computations record it; it is stored and dropped with the result.

use std::collections::{BTreeMap, BTreeSet};

use super::ids::NodeId;

/// An item that is counted in a gauge as long as a result that recorded it is in force.
pub trait Notice: Clone + Ord {
    /// What is counted each time that a result newly records a notice.
    type Occurrence: Clone + Ord;

    /// The occurrence that this is, if it is one.
    fn occurrence(&self) -> Option<Self::Occurrence>;
}

/// For computations that count nothing.
impl Notice for () {
    type Occurrence = ();

    fn occurrence(&self) -> Option<()> {
        None
    }
}

/// The notices of all results.
#[derive(Clone)]
pub(crate) struct Notices<N: Notice> {
    /// By result; results without notices are absent.
    of: BTreeMap<NodeId, Vec<N>>,
    /// The number of results with each notice.
    counts: BTreeMap<N, usize>,
    /// Whether they have changed since the last call of `take_changed`.
    changed: bool,
    /// Occurrences since the last call of `take_occurrences`.
    occurrences: BTreeMap<N::Occurrence, u64>,
}

impl<N: Notice> Notices<N> {
    /// Replaces the notices of a result.
    pub(crate) fn set(&mut self, node: NodeId, notices: Vec<N>) {
        if notices.is_empty() && self.of.is_empty() {
            return;
        }

        let notices: BTreeSet<N> = notices.into_iter().collect();
        for notice in &notices {
            let count = self.counts.entry(notice.clone()).or_insert_with(|| {
                self.changed = true;
                0
            });
            *count += 1;
            if let Some(occurrence) = notice.occurrence() {
                *self.occurrences.entry(occurrence).or_default() += 1;
            }
        }

        let before = if notices.is_empty() {
            self.of.remove(&node)
        } else {
            self.of.insert(node, notices.into_iter().collect())
        };

        for notice in before.into_iter().flatten() {
            if let Some(count) = self.counts.get_mut(&notice) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&notice);
                    self.changed = true;
                }
            }
        }
    }

    /// Occurrences since the last call.
    pub(crate) fn take_occurrences(&mut self) -> BTreeMap<N::Occurrence, u64> {
        std::mem::take(&mut self.occurrences)
    }

    /// All notices, if they have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Option<BTreeSet<N>> {
        std::mem::take(&mut self.changed).then(|| self.counts.keys().cloned().collect())
    }
}

impl<N: Notice> Default for Notices<N> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            counts: BTreeMap::new(),
            changed: false,
            occurrences: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subject; those that begin with "lost" are occurrences.
    impl Notice for &'static str {
        type Occurrence = usize;

        fn occurrence(&self) -> Option<usize> {
            self.starts_with("lost").then_some(self.len())
        }
    }

    #[test]
    fn a_notice_lasts_while_any_result_reports_it() {
        let mut notices = Notices::default();
        notices.set(NodeId(1), vec!["a", "a"]);
        notices.set(NodeId(2), vec!["a", "b"]);
        assert_eq!(notices.take_changed().map(|all| all.len()), Some(2));
        notices.set(NodeId(1), vec!["a"]);
        assert_eq!(notices.take_changed(), None);
        notices.set(NodeId(2), Vec::new());
        assert_eq!(notices.take_changed(), Some(["a"].into()));
        notices.set(NodeId(1), Vec::new());
        assert_eq!(notices.take_changed(), Some(BTreeSet::new()));
    }

    #[test]
    fn each_occurrence_is_counted() {
        let mut notices = Notices::default();
        notices.set(NodeId(1), vec!["lost"]);
        notices.set(NodeId(2), vec!["lost"]);
        assert_eq!(notices.take_occurrences(), [(4, 2)].into(), "two results");

        assert_eq!(notices.take_occurrences(), BTreeMap::new());
        notices.set(NodeId(1), Vec::new());
        notices.set(NodeId(2), Vec::new());
        notices.set(NodeId(3), vec!["lost"]);
        assert_eq!(notices.take_occurrences(), [(4, 1)].into());
    }
}
