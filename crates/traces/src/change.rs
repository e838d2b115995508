//! A change, as recorded for its trace.

use std::time::Duration;

use navarch_push::engine::PushStats;
use navarch_push::fact::FactKey;
use navarch_push::worker::{ChangedObject, PushRecord};
use tokio::time::Instant;

/// Maximum number of named inputs of a change without objects.
const MAX_NAMED: usize = 8;

/// A push record, as far as spans need it.
#[derive(Clone, Debug)]
pub(super) struct TracedChange {
    pub(super) revision: u64,
    /// The first of the objects that changed.
    pub(super) objects: Vec<ChangedObject>,
    /// The first of the inputs that changed, where no object did.
    pub(super) inputs: Vec<FactKey>,
    /// Number of changed inputs.
    pub(super) count: usize,
    /// When the first watch event arrived.
    pub(super) received_at: Option<Instant>,
    /// When the push began.
    pub(super) began: Instant,
    /// The duration until the snapshot was published.
    pub(super) taken_in: Duration,
    /// The duration until everything was published.
    pub(super) took: Duration,
    pub(super) stats: PushStats,
}

impl TracedChange {
    /// The record of a push. Cheap, as the push thread calls it.
    pub(super) fn of(push: &PushRecord) -> Self {
        let inputs = push
            .changed
            .iter()
            .filter(|_| push.objects.is_empty())
            .take(MAX_NAMED);
        Self {
            revision: push.revision,
            objects: push.objects.clone(),
            inputs: inputs.cloned().collect(),
            count: push.facts,
            received_at: push.received_at,
            began: push.began,
            taken_in: push.taken_in,
            took: push.took,
            stats: push.stats,
        }
    }

    /// When its snapshot was published.
    pub(super) fn in_force(&self) -> Instant {
        self.began + self.taken_in.min(self.took)
    }

    /// When all that it changes was published to streams.
    pub(super) fn published(&self) -> Instant {
        self.began + self.took
    }
}
