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

/// A notice that has become in force, or is not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeChange<N> {
    /// What is counted.
    pub notice: N,
    /// Whether any result in force has recorded it.
    pub is_in_force: bool,
}

/// The notices of all results.
#[derive(Clone)]
pub(crate) struct Notices<N: Notice> {
    /// By result; results without notices are absent.
    of: BTreeMap<NodeId, Vec<N>>,
    /// The number of results with each notice.
    counts: BTreeMap<N, usize>,
    /// Those that became in force, or ceased to be, since the last call of `take_changed`.
    changed: BTreeSet<N>,
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
            let count = self.counts.entry(notice.clone()).or_default();
            if *count == 0 {
                self.changed.insert(notice.clone());
            }
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
                    self.changed.insert(notice);
                }
            }
        }
    }

    /// Occurrences since the last call.
    pub(crate) fn take_occurrences(&mut self) -> BTreeMap<N::Occurrence, u64> {
        std::mem::take(&mut self.occurrences)
    }

    /// What has changed since the last call. It costs what has changed: with a notice for each
    /// subscriber, a list of all would make a start cost the square of their number.
    pub(crate) fn take_changed(&mut self) -> Vec<NoticeChange<N>> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let change = |notice: N| NoticeChange {
            is_in_force: self.counts.contains_key(&notice),
            notice,
        };
        changed.map(change).collect()
    }
}

impl<N: Notice> Default for Notices<N> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            counts: BTreeMap::new(),
            changed: BTreeSet::new(),
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

    /// Which notices have changed, and whether each is in force.
    fn changes(notices: &mut Notices<&'static str>) -> Vec<(&'static str, bool)> {
        let changed = notices.take_changed().into_iter();
        let pairs = changed.map(|change| (change.notice, change.is_in_force));
        pairs.collect()
    }

    #[test]
    fn a_notice_lasts_while_any_result_reports_it() {
        let mut notices = Notices::default();
        notices.set(NodeId(1), vec!["a", "a"]);
        notices.set(NodeId(2), vec!["a", "b"]);
        assert_eq!(changes(&mut notices), [("a", true), ("b", true)]);

        notices.set(NodeId(1), vec!["a"]);
        assert_eq!(changes(&mut notices), []);
        notices.set(NodeId(2), Vec::new());
        assert_eq!(changes(&mut notices), [("b", false)]);
        notices.set(NodeId(1), Vec::new());
        assert_eq!(changes(&mut notices), [("a", false)]);

        notices.set(NodeId(1), vec!["c"]);
        notices.set(NodeId(1), Vec::new());
        assert_eq!(changes(&mut notices), [("c", false)]);
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
