//! The problems that sources have reported and not taken back.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::problem::Problem;

/// Current problems of the input by place (file).
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<Mutex<BTreeMap<Arc<str>, Vec<Problem>>>>);

impl Problems {
    /// Replaces the problems of a place.
    pub fn set(&self, place: Arc<str>, problems: Vec<Problem>) {
        let mut all = self.0.lock();
        if problems.is_empty() {
            all.remove(&place);
        } else {
            all.insert(place, problems);
        }
    }

    /// Removes the problems of all places with this prefix.
    pub fn forget(&self, beginning: &str) {
        self.0
            .lock()
            .retain(|place, _| !place.starts_with(beginning));
    }

    /// All problems by place.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Arc<str>, Vec<Problem>> {
        self.0.lock().clone()
    }
}
