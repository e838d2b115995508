//! Remarks on ignored configuration, and gauge items.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use crate::ids::NodeId;
use crate::notice::{Notice, Unavailable};

/// Lookups of results since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// Lookups that found a valid result.
    pub(crate) held: u64,
    /// Results that were computed.
    pub(crate) computed: u64,
}

/// Configuration that is left out of resources, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The translator's text.
    pub text: Arc<str>,
    /// The first results in which it is left out, sorted.
    pub queries: Vec<String>,
    /// The number of further results in which it is left out.
    pub further: usize,
}

/// Maximum number of results listed with a remark.
const MAX_QUERIES: usize = 10;

impl Engine {
    /// The remarks of all results in force, by text.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        let core = self.core.borrow();
        let mut by_text: BTreeMap<Arc<str>, Remark> = BTreeMap::new();
        let remarkable: BTreeMap<NodeId, _> = core
            .memo
            .iter()
            .filter(|(_, node)| !node.remarks().is_empty())
            .collect();

        for node in remarkable.values() {
            for text in node.remarks() {
                let new = || Remark {
                    text: text.clone(),
                    queries: Vec::new(),
                    further: 0,
                };
                let remark = by_text.entry(text.clone()).or_insert_with(new);

                if remark.queries.len() == MAX_QUERIES {
                    remark.further += 1;
                    continue;
                }

                let query = format!("{:?}", core.queries.get(node.query));
                if let Err(place) = remark.queries.binary_search(&query) {
                    remark.queries.insert(place, query);
                }
            }
        }

        by_text.into_values().collect()
    }

    /// The gauge items of all results in force, if they changed since the last call.
    pub(crate) fn take_changed_notices(&mut self) -> Option<BTreeSet<Notice>> {
        self.core.get_mut().diagnostics.take_changed_notices()
    }

    /// Lookups of results since the start.
    #[must_use]
    pub(crate) fn reads(&self) -> Reads {
        let core = self.core.borrow();
        Reads {
            held: core.counters.reused(),
            computed: core.counters.computed(),
        }
    }

    /// Failed lookups since the last call.
    pub(crate) fn take_failed(&mut self) -> BTreeMap<Unavailable, u64> {
        self.core.get_mut().diagnostics.take_failed()
    }

    /// Remarks since the last call.
    pub fn take_fresh_remarks(&mut self) -> BTreeSet<Arc<str>> {
        self.core.get_mut().diagnostics.take_fresh_remarks()
    }
}
