//! The Prometheus queries of rollouts.

use std::time::Duration;

use navarch_api::object::ObjectRef;
use navarch_push::rollout::Rollout;
use tokio::time::Instant;

use super::prometheus::Condition;
use super::stage::Query;
use super::{RolloutController, TrackedRollout};

/// Retry delay of a failed query.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// A result of Prometheus, with its rollout and stage.
#[derive(Debug)]
pub(super) struct QueryResult {
    name: ObjectRef,
    /// The rollout's serial number.
    serial: u64,
    /// The stage at which it was queried, from 0.
    at: Option<usize>,
    condition: Condition,
}

impl RolloutController {
    /// Starts a Prometheus query, unless one is in flight.
    pub(super) fn query_prometheus(&mut self, name: &ObjectRef, rollout: &Rollout) {
        let Some(known) = self.known.get_mut(name).filter(|known| !known.is_queried) else {
            return;
        };
        let Some(query) = rollout.plan.query.clone() else {
            return;
        };

        known.is_queried = true;
        known.reason = "waits for Prometheus".to_owned();

        let prometheus = self.prometheus.clone();
        let name = name.clone();
        let serial = known.serial;
        let at = known.at;
        self.queries.spawn(async move {
            let condition = prometheus.query(name.name.namespace.as_str(), &query).await;
            QueryResult {
                name,
                serial,
                at,
                condition,
            }
        });
    }

    /// Applies a result of Prometheus, if it is still current.
    pub(super) fn record_query_result(&mut self, result: Option<QueryResult>) {
        let Some(result) = result else {
            return;
        };
        let known = self
            .known
            .get_mut(&result.name)
            .filter(|known| (known.serial, known.at) == (result.serial, result.at));
        if let Some(known) = known {
            known.is_queried = false;
            known.query = Some((result.condition, Instant::now()));
        }
    }
}

/// The result of a rollout's Prometheus query.
pub(super) fn query<'a>(rollout: &Rollout, known: &'a TrackedRollout) -> Query<'a> {
    match (&rollout.plan.query, &known.query) {
        (None, _) => Query::None,
        (Some(_), None) => Query::Pending,
        (Some(_), Some((Condition::Holds, _))) => Query::Holds,
        (Some(_), Some((Condition::Fails(what), _))) => Query::Fails(what),
        (Some(_), Some((Condition::Unknown(_), at))) if at.elapsed() >= RETRY_DELAY => {
            Query::Pending
        }
        (Some(_), Some((Condition::Unknown(why), _))) => Query::Unknown(why),
    }
}
