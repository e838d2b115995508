//! A sorted list of names that is updated incrementally.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::grouped_list::GroupedList;
use navarch_api::names::ResourceName;

/// Sorted names in chunks, the chunks in groups.
pub(crate) type GroupedNames = GroupedList<ResourceName>;

/// Sorted names, cut into chunks as those of collections. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NameList(Arc<GroupedNames>);

impl NameList {
    /// Inserts and removes names. The cost is proportional to these names and the number of
    /// groups in the list, about a thousandth of its length.
    pub fn update(&mut self, added: &BTreeSet<ResourceName>, removed: &BTreeSet<ResourceName>) {
        if !(added.is_empty() && removed.is_empty()) {
            self.0 = Arc::new(self.0.update(added, removed));
        }
    }

    pub(super) fn groups(&self) -> &Arc<GroupedNames> {
        &self.0
    }
}

impl fmt::Debug for NameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.items()).finish()
    }
}
