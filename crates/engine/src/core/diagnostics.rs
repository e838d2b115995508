//! What computations report beside their results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::NodeId;
use crate::notice::{Notice, NoticeChange, Notices};

/// The remarks and notices of results. The remarks of a result are kept with it.
#[derive(Clone)]
pub(crate) struct Diagnostics<N: Notice> {
    /// Remarks since the last log, each once.
    fresh_remarks: BTreeSet<Arc<str>>,
    /// Gauge items of results in force.
    notices: Notices<N>,
}

impl<N: Notice> Diagnostics<N> {
    /// Adds remarks to those that are to be logged.
    pub(crate) fn add_remarks(&mut self, remarks: &[Arc<str>]) {
        self.fresh_remarks.extend(remarks.iter().cloned());
    }

    /// Replaces the notices of a result.
    pub(crate) fn set_notices(&mut self, node: NodeId, notices: Vec<N>) {
        self.notices.set(node, notices);
    }

    /// Removes the notices of a dropped result.
    pub(super) fn remove_notices(&mut self, node: NodeId) {
        self.notices.set(node, Vec::new());
    }

    /// Remarks since the last call.
    pub(crate) fn take_fresh_remarks(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.fresh_remarks)
    }

    /// The notices that became in force, or ceased to be, since the last call.
    pub(crate) fn take_changed_notices(&mut self) -> Vec<NoticeChange<N>> {
        self.notices.take_changed()
    }

    /// Occurrences since the last call.
    pub(crate) fn take_occurrences(&mut self) -> BTreeMap<N::Occurrence, u64> {
        self.notices.take_occurrences()
    }
}

impl<N: Notice> Default for Diagnostics<N> {
    fn default() -> Self {
        Self {
            fresh_remarks: BTreeSet::new(),
            notices: Notices::default(),
        }
    }
}
