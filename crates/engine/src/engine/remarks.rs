//! Remarks on ignored inputs, and what results count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use crate::config::Reads;
use crate::ids::NodeId;
use crate::inputs::Inputs;
use crate::notice::{Notice, NoticeChange};

/// An input that is ignored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The computation's text.
    pub text: Arc<str>,
    /// The first results that ignore it, sorted.
    pub queries: Vec<String>,
    /// The number of further results that ignore it.
    pub further: usize,
}

/// Maximum number of results listed with a remark.
const MAX_QUERIES: usize = 10;

impl<I: Inputs> Engine<I> {
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

    /// The notices that became in force, or ceased to be, since the last call.
    pub fn take_changed_notices(&mut self) -> Vec<NoticeChange<I::Notice>> {
        self.core.get_mut().diagnostics.take_changed_notices()
    }

    /// Lookups of results since the start.
    #[must_use]
    pub fn reads(&self) -> Reads {
        let core = self.core.borrow();
        Reads {
            held: core.counters.reused(),
            computed: core.counters.computed(),
        }
    }

    /// The number of each occurrence since the last call.
    pub fn take_occurrences(&mut self) -> BTreeMap<<I::Notice as Notice>::Occurrence, u64> {
        self.core.get_mut().diagnostics.take_occurrences()
    }

    /// Remarks since the last call.
    pub fn take_fresh_remarks(&mut self) -> BTreeSet<Arc<str>> {
        self.core.get_mut().diagnostics.take_fresh_remarks()
    }
}
