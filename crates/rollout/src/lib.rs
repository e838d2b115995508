//! Rolls out changes to proxies in stages: chooses the first proxies, advances when all have
//! acknowledged it, and rolls back when one rejects it.
//!
//! ```text
//! a change that asks for stages ─▶ Waiting ─▶ stage 1 ─▶ stage 2 ─▶ … ─▶ all ─▶ it is in force
//!                                               └── rejected, query fails, aborted ──▶ stopped, until it is edited
//! ```
//!
//! The push thread decides which proxy sees which version ([`navarch_push::rollout`]); this crate
//! decides when that changes. What operators see is reported as [`navarch_answers::rollout`], and
//! replicas share their decisions in ConfigMaps ([`navarch_status::RolloutStore`]).

mod agree;
mod commands;
mod control;
mod deletions;
mod poll;
mod prometheus;
mod proxy_counts;
mod queries;
mod representatives;
mod shared;
mod stage;
mod stages;
mod start;
mod status;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_answers::rollout::Rollouts;
use navarch_api::object::ObjectRef;
use navarch_push::worker::PushHandle;
use navarch_xds::connections::Connections;
use navarch_xds::standing::Rejecting;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use control::{OperatorCommand, OperatorRequest, RolloutControl, RolloutError};
pub use deletions::deleted_at_once;
pub use prometheus::QueryNamespaces;
pub use start::{Parts, Started, StoredRollouts, start};

use prometheus::{Condition, Prometheus};
use proxy_counts::ProxyCounts;
use queries::QueryResult;
use shared::Shared;

/// How long a rollout whose stage is not acknowledged holds a slot: a client that never answers
/// does not stop others.
const MAX_MOVING_TIME: Duration = Duration::from_secs(60);

/// The state of a rollout beside that of the push thread.
#[derive(Debug)]
struct TrackedRollout {
    /// The rollout's serial number.
    serial: u64,
    /// The current stage, from 0.
    at: Option<usize>,
    /// When its first stage began here.
    begun: Option<Instant>,
    /// When the stage began.
    since: Instant,
    /// Whether an operator has paused it.
    is_paused: bool,
    /// What proxies rejected before the stage began.
    rejecting: Arc<Rejecting>,
    tally: ProxyCounts,
    /// Whether the log has the message that the stage goes on without the answers of some proxies.
    is_going_on_logged: bool,
    /// The result of Prometheus at this stage, and its time.
    query: Option<(Condition, Instant)>,
    /// Whether a query is in flight.
    is_queried: bool,
    /// Why it does not advance.
    reason: String,
}

impl TrackedRollout {
    /// Whether proxies are about to acknowledge its stage.
    fn is_moving(&self) -> bool {
        let pending = self.tally.pending + self.tally.pending_for_a_time;
        let has_evidence = self.tally.reached > 0 && self.tally.without_evidence() == 0;
        let is_acknowledged = has_evidence && pending == 0;
        !self.is_paused && !is_acknowledged && self.since.elapsed() < MAX_MOVING_TIME
    }
}

/// The controller: it owns the state of all rollouts, and runs as one task.
struct RolloutController {
    push: PushHandle,
    connections: Arc<Connections>,
    known: BTreeMap<ObjectRef, TrackedRollout>,
    status_sender: watch::Sender<Arc<Rollouts>>,
    prometheus: Arc<Prometheus>,
    /// State that is shared with other replicas; `None` with a single replica.
    shared: Option<Shared>,
    /// Queries to Prometheus: at most one per rollout.
    queries: JoinSet<QueryResult>,
    /// How long the current poll has waited for pushes, which is no work of its own.
    waited: Duration,
}
