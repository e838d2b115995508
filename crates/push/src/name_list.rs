//! A sorted list of names that is kept while names come and go.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::engine::runs::{Runs, update};
use navarch_api::names::ResourceName;

/// Names in order, cut as collections are. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NameList(Arc<Runs>);

impl NameList {
    /// Takes names in and out. Costs those, and the number of pieces in which the list is kept.
    pub fn update(&mut self, added: &BTreeSet<ResourceName>, removed: &BTreeSet<ResourceName>) {
        if !(added.is_empty() && removed.is_empty()) {
            self.0 = Arc::new(update(&self.0, added, removed));
        }
    }

    /// The names in pieces.
    pub(super) fn runs(&self) -> &Arc<Runs> {
        &self.0
    }
}

impl fmt::Debug for NameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}
