//! What computations report beside their results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::NodeId;
use crate::notice::{Notice, Notices, Unavailable};

/// The remarks and notices of results. The remarks of a result are kept with it.
#[derive(Clone, Default)]
pub(crate) struct Diagnostics {
    /// Remarks since the last log, each once.
    fresh_remarks: BTreeSet<Arc<str>>,
    /// Gauge items of results in force.
    notices: Notices,
}

impl Diagnostics {
    /// Adds remarks to those that are to be logged.
    pub(crate) fn add_remarks(&mut self, remarks: &[Arc<str>]) {
        self.fresh_remarks.extend(remarks.iter().cloned());
    }

    /// Replaces the notices of a result.
    pub(crate) fn set_notices(&mut self, node: NodeId, notices: Vec<Notice>) {
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

    /// All notices, if they have changed since the last call.
    pub(crate) fn take_changed_notices(&mut self) -> Option<BTreeSet<Notice>> {
        self.notices.take_changed()
    }

    /// Failed lookups since the last call.
    pub(crate) fn take_failed(&mut self) -> BTreeMap<Unavailable, u64> {
        self.notices.take_failed()
    }
}
