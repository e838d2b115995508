//! A sorted list of names that is updated incrementally.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::chunked_list::{ChunkedList, update};
use navarch_api::names::ResourceName;

/// Sorted names in chunks.
pub(crate) type NameChunks = ChunkedList<ResourceName>;

/// Sorted names, cut into chunks as those of collections. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NameList(Arc<NameChunks>);

impl NameList {
    /// Inserts and removes names. The cost is proportional to these names and the number of chunks
    /// in the list.
    pub fn update(&mut self, added: &BTreeSet<ResourceName>, removed: &BTreeSet<ResourceName>) {
        if !(added.is_empty() && removed.is_empty()) {
            self.0 = Arc::new(update(&self.0, added, removed));
        }
    }

    pub(super) fn chunks(&self) -> &Arc<NameChunks> {
        &self.0
    }
}

impl fmt::Debug for NameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}
