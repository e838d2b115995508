//! What translators could not make use of, and what is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use crate::memo::NodeId;
use crate::notice::{Notice, Unavailable};

/// What was asked of results since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// Those that were asked for and held.
    pub(crate) held: u64,
    /// Those that were computed.
    pub(crate) computed: u64,
}

/// Something that was left out of what proxies get, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The words of the translator.
    pub text: Arc<str>,
    /// The results in which it was left out, sorted: the first of them.
    pub queries: Vec<String>,
    /// In how many further results it was left out.
    pub further: usize,
}

/// How many results are named with a remark.
const MAX_QUERIES: usize = 10;

impl Engine {
    /// All remarks about results in force, by text.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        let core = self.core.borrow();
        let mut by_text: BTreeMap<Arc<str>, Remark> = BTreeMap::new();
        let remarkable: BTreeMap<&NodeId, _> =
            core.nodes.iter().filter(|(_, node)| !node.rare().remarks.is_empty()).collect();
        for node in remarkable.values() {
            for text in &node.rare().remarks {
                let new = || Remark { text: text.clone(), queries: Vec::new(), further: 0 };
                let remark = by_text.entry(text.clone()).or_insert_with(new);
                if remark.queries.len() == MAX_QUERIES {
                    remark.further += 1;
                    continue;
                }
                let query = format!("{:?}", core.query(node.query));
                if let Err(place) = remark.queries.binary_search(&query) {
                    remark.queries.insert(place, query);
                }
            }
        }
        by_text.into_values().collect()
    }

    /// All that is counted about results in force, if it is not the same as when last asked.
    pub(crate) fn take_changed_notices(&mut self) -> Option<BTreeSet<Notice>> {
        self.core.get_mut().notices.take_changed()
    }

    /// What was asked of results since the start.
    #[must_use]
    pub(crate) fn reads(&self) -> Reads {
        let core = self.core.borrow();
        Reads { held: core.reused, computed: core.computed }
    }

    /// How often something could not be had since this was last asked.
    pub(crate) fn take_failed(&mut self) -> BTreeMap<Unavailable, u64> {
        self.core.get_mut().notices.take_failed()
    }

    /// The remarks made since this was last asked.
    pub fn take_fresh_remarks(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.core.get_mut().fresh_remarks)
    }
}
