//! Gauge items of results in force.
//!
//! Translators record them while they compute; they are stored and dropped with the result. Unlike
//! a remark, a notice has no text: it is a subject of a gauge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ids::NodeId;

/// An item that is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// A subject of a gauge, which counts each subject once.
    Subject {
        /// The gauge's name.
        gauge: &'static str,
        /// The counted subject.
        subject: Arc<str>,
    },
    /// A patch of an EnvoyFilter that changed something.
    Patched {
        /// The EnvoyFilter: `namespace/name`.
        filter: Arc<str>,
        /// The target of the patch.
        kind: &'static str,
    },
    /// A failed lookup. It is counted each time that a result newly records it.
    Failed {
        /// The kind of lookup.
        what: Unavailable,
        /// The name that was looked up, or the proxy.
        subject: Arc<str>,
    },
}

/// The kind of a failed lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unavailable {
    /// A key, certificate or root for a proxy.
    Secret,
    /// The cluster of a provider's service, with the kind of the provider.
    Provider(&'static str),
    /// The services that a proxy serves, with the reason.
    Targets(&'static str),
}

/// The notices of all results.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    /// By result; results without notices are absent.
    of: BTreeMap<NodeId, Vec<Notice>>,
    /// The number of results with each notice.
    counts: BTreeMap<Notice, usize>,
    /// Whether they have changed since the last call of `take_changed`.
    changed: bool,
    /// Failed lookups since the last call of `take_failed`.
    failed: BTreeMap<Unavailable, u64>,
}

impl Notices {
    /// Replaces the notices of a result.
    pub(super) fn set(&mut self, node: NodeId, notices: Vec<Notice>) {
        if notices.is_empty() && self.of.is_empty() {
            return;
        }

        let notices: BTreeSet<Notice> = notices.into_iter().collect();
        for notice in &notices {
            let count = self.counts.entry(notice.clone()).or_insert_with(|| {
                self.changed = true;
                0
            });
            *count += 1;
            if let Notice::Failed { what, .. } = notice {
                *self.failed.entry(*what).or_default() += 1;
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
                    self.changed = true;
                }
            }
        }
    }

    /// Failed lookups since the last call.
    pub(super) fn take_failed(&mut self) -> BTreeMap<Unavailable, u64> {
        std::mem::take(&mut self.failed)
    }

    /// All notices, if they have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Option<BTreeSet<Notice>> {
        std::mem::take(&mut self.changed).then(|| self.counts.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_lasts_while_any_result_reports_it() {
        let notice = |subject: &str| Notice::Subject {
            gauge: "g",
            subject: subject.into(),
        };
        let mut notices = Notices::default();
        notices.set(NodeId(1), vec![notice("a"), notice("a")]);
        notices.set(NodeId(2), vec![notice("a"), notice("b")]);
        assert_eq!(notices.take_changed().map(|all| all.len()), Some(2));
        notices.set(NodeId(1), vec![notice("a")]);
        assert_eq!(notices.take_changed(), None);
        notices.set(NodeId(2), Vec::new());
        assert_eq!(notices.take_changed(), Some([notice("a")].into()));
        notices.set(NodeId(1), Vec::new());
        assert_eq!(notices.take_changed(), Some(BTreeSet::new()));
    }

    #[test]
    fn each_occurrence_of_a_failure_is_counted() {
        let failed = || {
            vec![Notice::Failed {
                what: Unavailable::Secret,
                subject: "tls".into(),
            }]
        };

        let mut notices = Notices::default();
        notices.set(NodeId(1), failed());
        notices.set(NodeId(2), failed());
        assert_eq!(
            notices.take_failed(),
            [(Unavailable::Secret, 2)].into(),
            "two results"
        );

        assert_eq!(notices.take_failed(), BTreeMap::new());
        notices.set(NodeId(1), Vec::new());
        notices.set(NodeId(2), Vec::new());
        notices.set(NodeId(3), failed());
        assert_eq!(notices.take_failed(), [(Unavailable::Secret, 1)].into());
    }
}
