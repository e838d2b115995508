//! Rolls out changes to proxies in stages: chooses the first proxies, advances when all have
//! acknowledged it, and rolls back when one rejects it.
//!
//! ```text
//! a change that asks for stages ─▶ Waiting ─▶ stage 1 ─▶ stage 2 ─▶ … ─▶ all ─▶ it is in force
//!                                               └── refused, query fails, aborted ──▶ stopped, until it is edited
//! ```
//!
//! The push thread decides which proxy sees which version ([`navarch_push::rollout`]); this crate
//! decides when that changes. What operators see is reported as [`navarch_answers::rollout`], and
//! replicas share their decisions in ConfigMaps ([`navarch_status::RolloutStore`]).

mod agree;
mod control;
mod orders;
mod prometheus;
mod proxy_counts;
mod shared;
mod stage;
mod start;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use control::{OperatorCommand, OperatorRequest, RolloutControl, RolloutRefusal};
pub use prometheus::QueryNamespaces;
pub use start::{Parts, start};

use agree::Agreement;
use jiff::Timestamp;
use navarch_answers::rollout::Rollouts;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::rollout::slots::{Full, Slots};
use navarch_push::rollout::{Rollout, RolloutOrder, RolloutProgress};
use navarch_push::worker::{Ended, PushHandle};
use navarch_status::SharedState;
use navarch_xds::connections::{ConnectionInfo, Connections};
use prometheus::{Answer, Prometheus};
use proxy_counts::{Members, ProxyCounts, Refusing, chosen, refusing, representatives};
use shared::{MIN_STAGE, Shared};
use stage::{Next, Query, StageView, foreign_wait_left, next};

/// Poll interval of the proxies' state.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Pause between polls, as a multiple of the duration of the last one: they take a twentieth of a
/// core at most.
const PAUSE_FACTOR: u32 = 19;
/// The longest pause between polls: for so long a change waits that may begin.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a rollout whose stage is not acknowledged holds a slot: a client that never answers
/// does not stop others.
const MAX_MOVING_TIME: Duration = Duration::from_secs(60);
/// How long a rollout may last in addition to the pauses of its stages.
const ACKNOWLEDGEMENT_TIME: Duration = Duration::from_secs(7 * 86_400);
/// Retry delay of a failed Prometheus query.
const PROMETHEUS_RETRY_DELAY: Duration = Duration::from_secs(5);

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
    /// Proxies that rejected something before the stage began.
    refusing: Refusing,
    tally: ProxyCounts,
    /// Whether the log says that the stage goes on without proxies of other namespaces.
    is_going_on_logged: bool,
    /// The result of Prometheus at this stage, and its time.
    query: Option<(Answer, Instant)>,
    /// Whether a query is in flight.
    is_queried: bool,
    /// Why it does not advance.
    reason: String,
}

impl TrackedRollout {
    /// Whether proxies are about to acknowledge its stage.
    fn is_moving(&self) -> bool {
        let pending = self.tally.pending + self.tally.pending_for_a_time;
        let is_acknowledged = self.tally.reached > 0 && pending == 0;
        !self.is_paused && !is_acknowledged && self.since.elapsed() < MAX_MOVING_TIME
    }
}

/// A result of Prometheus, with its rollout and stage.
type QueryResult = (ObjectRef, u64, Option<usize>, Answer);

/// The rollout controller.
struct Work {
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

impl Work {
    /// Runs until `stop` is cancelled.
    async fn run(mut self, mut received: mpsc::Receiver<OperatorRequest>, stop: CancellationToken) {
        let mut contexts = self.push.contexts();
        let mut due = Instant::now();

        loop {
            let is_idle = self.known.is_empty();
            let tidies_at = self.shared.as_ref().map_or(due, Shared::next_read);
            let event = async {
                tokio::select! {
                    order = received.recv() => order,
                    Some(answered) = self.queries.join_next() => {
                        self.note(answered.ok());
                        None
                    }
                    changed = contexts.changed(), if is_idle => { changed.ok(); None }
                    () = tokio::time::sleep_until(due), if !is_idle => None,
                    () = tokio::time::sleep_until(tidies_at), if is_idle && self.shared.is_some() => None,
                }
            };

            let Some(order) = stop.run_until_cancelled(event).await else {
                return;
            };

            let begun = Instant::now();
            let answered = match order {
                Some((name, order, answer)) => Some((answer, self.run_command(&name, order).await)),
                None => None,
            };

            if self.look().await.is_err() {
                // The process is shutting down.
                stop.cancelled().await;
                return;
            }

            if let Some((answer, outcome)) = answered {
                // The caller may have disconnected.
                answer.send(outcome).ok();
            }

            let waited = std::mem::take(&mut self.waited);
            due = Instant::now() + pause_after(begun.elapsed().saturating_sub(waited));
        }
    }

    /// Checks all rollouts, and applies the decisions.
    async fn look(&mut self) -> Result<(), Ended> {
        let context = self.push.context();
        self.known
            .retain(|name, _| context.rollouts.contains_key(name));

        if let Some(shared) = &mut self.shared {
            shared.read(&context).await;
            let missed = if self.push.is_synced() {
                shared.missed(&context)
            } else {
                Vec::new()
            };
            if !missed.is_empty() {
                self.push
                    .change(missed.into_iter().filter_map(start::restored).collect())
                    .await?;
            }
        }

        if context.rollouts.is_empty() {
            self.publish_status(&context);
            return Ok(());
        }

        let connections = self.connections.list();
        for (name, rollout) in &context.rollouts {
            self.follow(name, rollout, &connections);
        }
        let turns = self.turns(&context);

        for (name, rollout) in &context.rollouts {
            let held = match self.agree(name, rollout, &context, &connections).await? {
                Agreement::Done => continue,
                Agreement::GoOn => None,
                Agreement::Held(why) => Some(why),
            };

            match &rollout.progress {
                RolloutProgress::Waiting if held.is_some() => {
                    self.note_reason(name, held.unwrap_or_default())
                }
                RolloutProgress::Waiting if turns.get(name) == Some(&Ok(())) => {
                    if self
                        .decide(
                            name,
                            &context,
                            SharedState::Stage {
                                at: 0,
                                paused: false,
                            },
                        )
                        .await
                    {
                        self.enter(name, rollout, 0, &connections).await?;
                    }
                }
                RolloutProgress::Waiting => {
                    if let Some(Err(full)) = turns.get(name) {
                        self.note_reason(name, full.to_string());
                    }
                }
                RolloutProgress::Stopped(reason) => self.note_reason(name, reason.to_string()),
                RolloutProgress::Stage { .. } => {
                    self.work_on(name, rollout, &context, &connections, held.as_deref())
                        .await?;
                }
            }
        }

        self.publish_status(&self.push.context());
        Ok(())
    }

    /// Which waiting rollouts begin now, and why others do not. Those that an operator has paused
    /// are not among them.
    fn turns(&self, context: &PushContext) -> BTreeMap<ObjectRef, Result<(), Full>> {
        let mut slots = Slots::default();
        let mut waiting = Vec::new();

        for (name, rollout) in &context.rollouts {
            let known = self.known.get(name);
            let namespace = &name.name.namespace;
            match rollout.progress {
                RolloutProgress::Stage { .. } => {
                    slots.add(namespace, known.is_none_or(TrackedRollout::is_moving));
                }
                RolloutProgress::Waiting if known.is_some_and(|known| known.is_paused) => {}
                RolloutProgress::Waiting => {
                    waiting.push((rollout.serial, namespace.clone(), name.clone()));
                }
                RolloutProgress::Stopped(_) => {}
            }
        }

        waiting.sort_by_key(|(serial, _, _)| *serial);
        let waiting = waiting
            .into_iter()
            .map(|(_, namespace, name)| (namespace, name))
            .collect();
        slots.assign(waiting).into_iter().collect()
    }

    /// Tracks a rollout and its current stage.
    fn follow(&mut self, name: &ObjectRef, rollout: &Rollout, connections: &[ConnectionInfo]) {
        let at = match rollout.progress {
            RolloutProgress::Stage { at, .. } => Some(at),
            RolloutProgress::Waiting | RolloutProgress::Stopped(_) => None,
        };
        let known = self.known.get(name);
        if known.is_some_and(|known| known.serial == rollout.serial && known.at == at) {
            return;
        }

        let of_same = known.filter(|known| known.serial == rollout.serial);
        let fresh = TrackedRollout {
            serial: rollout.serial,
            at,
            begun: of_same
                .and_then(|known| known.begun)
                .or_else(|| at.map(|_| Instant::now())),
            since: Instant::now(),
            is_paused: of_same.is_some_and(|known| known.is_paused),
            refusing: of_same.map_or_else(|| refusing(connections), |known| known.refusing.clone()),
            tally: ProxyCounts::default(),
            is_going_on_logged: false,
            query: None,
            is_queried: false,
            reason: String::new(),
        };

        self.known.insert(name.clone(), fresh);
    }

    /// Checks a rollout at a stage, and applies the decision; `held` is why other replicas block it,
    /// if they do.
    async fn work_on(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
        context: &PushContext,
        connections: &[ConnectionInfo],
        held: Option<&str>,
    ) -> Result<(), Ended> {
        let RolloutProgress::Stage { at, .. } = rollout.progress else {
            return Ok(());
        };
        if rollout.share().is_none() {
            return Ok(());
        }
        let Some(known) = self.known.get(name) else {
            return Ok(());
        };

        let Some(object) = context.new_versions.any(name) else {
            return Ok(());
        };

        let members = Members::of(rollout, context, connections);
        let refusing = known.refusing.clone();
        let since = known.since;
        let is_shared = self.shared.is_some();
        let tally = self
            .push
            .inspect(move |inspect| members.tally(inspect, &object, &refusing, is_shared))
            .await?;

        let at_stage = since.elapsed();
        let are_foreign_late =
            tally.pending_for_a_time > 0 && foreign_wait_left(at_stage).is_none();
        let are_pending = tally.pending > 0 || tally.pending_for_a_time > 0 && !are_foreign_late;
        if let Some(shared) = &mut self.shared {
            shared.report_pending(name, are_pending).await;
        }
        if are_foreign_late {
            self.log_going_on(name, rollout, &tally);
        }

        let Some(known) = self.known.get(name) else {
            return Ok(());
        };

        let shares = rollout.plan.stages.shares();
        let least = self.shared.as_ref().map(|_| MIN_STAGE).unwrap_or_default();
        let seen = StageView {
            is_last: at + 1 >= shares.len(),
            at_stage,
            pause: rollout.plan.pause.max(least),
            life: known.begun.map(|begun| begun.elapsed()).unwrap_or_default(),
            max_life: max_life(rollout),
            is_paused: known.is_paused,
            pending: tally.pending,
            pending_for_a_time: tally.pending_for_a_time,
            contested: tally.contested.as_deref(),
            contested_for_a_time: tally.contested_for_a_time.as_deref(),
            refused: tally.refused.as_deref(),
            held,
            query: query(rollout, known),
        };

        let next = next(&seen);
        if let Some(known) = self.known.get_mut(name) {
            known.tally = tally.clone();
        }

        match next {
            Next::Stay(reason) => {
                self.note_reason(name, reason);
                self.add_workloads(name, rollout, connections).await
            }
            Next::Ask => {
                self.query_prometheus(name, rollout);
                Ok(())
            }
            Next::Advance
                if self
                    .decide(
                        name,
                        context,
                        SharedState::Stage {
                            at: at + 1,
                            paused: false,
                        },
                    )
                    .await =>
            {
                self.enter(name, rollout, at + 1, connections).await
            }
            Next::Complete
                if self
                    .decide(
                        name,
                        context,
                        SharedState::Complete {
                            since: Timestamp::now(),
                        },
                    )
                    .await =>
            {
                self.complete(name, rollout).await
            }
            Next::Advance | Next::Complete => Ok(()),
            Next::Stop(reason) => self.stop(name, rollout, &reason).await,
        }
    }

    /// Adds proxies of workloads that were added since the stage of a rollout began.
    async fn add_workloads(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
        connections: &[ConnectionInfo],
    ) -> Result<(), Ended> {
        let RolloutProgress::Stage { at, chosen: before } = &rollout.progress else {
            return Ok(());
        };
        let Some(share) = rollout.share() else {
            return Ok(());
        };

        let now = chosen(rollout, share, before, representatives(connections));
        if now.iter().all(|one| before.contains(one)) {
            return Ok(());
        }

        self.order(
            name,
            RolloutOrder::Stage {
                serial: Some(rollout.serial),
                at: *at,
                chosen: Arc::new(now),
            },
        )
        .await
    }

    /// Logs, once for each stage, that it goes on without proxies of other namespaces.
    fn log_going_on(&mut self, name: &ObjectRef, rollout: &Rollout, tally: &ProxyCounts) {
        let Some(known) = self
            .known
            .get_mut(name)
            .filter(|known| !known.is_going_on_logged)
        else {
            return;
        };

        known.is_going_on_logged = true;
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation = rollout.generation,
            proxies = tally.pending_for_a_time,
            rejected = tally.contested_for_a_time.as_deref().map(tracing::field::display),
            "rollout: waits no longer for proxies outside its namespace to acknowledge the change"
        );
    }

    /// Starts a Prometheus query, unless one is in flight.
    fn query_prometheus(&mut self, name: &ObjectRef, rollout: &Rollout) {
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
            let answer = prometheus.query(name.name.namespace.as_str(), &query).await;
            (name, serial, at, answer)
        });
    }

    /// Applies a result of Prometheus, if it is still current.
    fn note(&mut self, answered: Option<QueryResult>) {
        let Some((name, serial, at, answer)) = answered else {
            return;
        };
        let known = self
            .known
            .get_mut(&name)
            .filter(|known| (known.serial, known.at) == (serial, at));
        if let Some(known) = known {
            known.is_queried = false;
            known.query = Some((answer, Instant::now()));
        }
    }

    /// Advances a rollout to a stage.
    async fn enter(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
        at: usize,
        connections: &[ConnectionInfo],
    ) -> Result<(), Ended> {
        let shares = rollout.plan.stages.shares();
        let Some(share) = shares.get(at).copied() else {
            return self.complete(name, rollout).await;
        };

        let none = BTreeSet::new();
        let before = match &rollout.progress {
            RolloutProgress::Stage { chosen, .. } => chosen,
            RolloutProgress::Waiting | RolloutProgress::Stopped(_) => &none,
        };
        let chosen = chosen(rollout, share, before, representatives(connections));

        let stage = at + 1;
        let stages = shares.len();
        let generation = rollout.generation;
        tracing::info!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation,
            stage, stages, %share, "rollout: advancing the change to this share of the proxies"
        );
        if let Some(known) = self.known.get_mut(name) {
            known.refusing = refusing(connections);
        }

        self.order(
            name,
            RolloutOrder::Stage {
                serial: Some(rollout.serial),
                at,
                chosen: Arc::new(chosen),
            },
        )
        .await
    }

    /// Completes a rollout: all proxies get the new version.
    async fn complete(&mut self, name: &ObjectRef, rollout: &Rollout) -> Result<(), Ended> {
        tracing::info!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation = rollout.generation,
            "rollout: complete; all proxies use the change"
        );
        self.order(
            name,
            RolloutOrder::Complete {
                serial: Some(rollout.serial),
            },
        )
        .await
    }

    /// Rolls back: all proxies get the previous version.
    async fn stop(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
        reason: &str,
    ) -> Result<(), Ended> {
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation = rollout.generation,
            %reason, "rollout: stopped; all proxies get the previous version until the object is edited"
        );
        self.order(
            name,
            RolloutOrder::Stop {
                serial: Some(rollout.serial),
                reason: reason.into(),
            },
        )
        .await
    }

    /// Sends a command, and waits for its result.
    async fn order(&mut self, name: &ObjectRef, order: RolloutOrder) -> Result<(), Ended> {
        self.push
            .change(vec![Change::Rollout(name.clone(), Arc::new(order.clone()))])
            .await?;
        let is_done = |context: &Arc<PushContext>| match (&order, context.rollouts.get(name)) {
            (_, None) => true,
            (RolloutOrder::Stage { serial, at, chosen }, Some(rollout)) => {
                let there = RolloutProgress::Stage {
                    at: *at,
                    chosen: chosen.clone(),
                };
                Some(rollout.serial) != *serial || rollout.is_stopped() || rollout.progress == there
            }
            (RolloutOrder::Stop { serial, .. }, Some(rollout)) => {
                Some(rollout.serial) != *serial || rollout.is_stopped()
            }
            (RolloutOrder::Complete { serial }, Some(rollout)) => Some(rollout.serial) != *serial,
            (RolloutOrder::Restore { .. }, Some(_)) => true,
        };

        let sent = Instant::now();
        let outcome = self.push.contexts().wait_for(is_done).await.map(drop);
        self.waited += sent.elapsed();
        outcome.map_err(|_| Ended)
    }
}

/// The pause after a poll that has worked for this long.
fn pause_after(worked: Duration) -> Duration {
    worked
        .saturating_mul(PAUSE_FACTOR)
        .clamp(POLL_INTERVAL, MAX_PAUSE)
}

/// How long a rollout may last: the pauses of its stages, and time to acknowledge them.
fn max_life(rollout: &Rollout) -> Duration {
    let stages = u32::try_from(rollout.plan.stages.shares().len()).unwrap_or(u32::MAX);
    rollout
        .plan
        .pause
        .saturating_mul(stages)
        .saturating_add(ACKNOWLEDGEMENT_TIME)
}

/// The result of a rollout's Prometheus query.
fn query<'a>(rollout: &Rollout, known: &'a TrackedRollout) -> Query<'a> {
    match (&rollout.plan.query, &known.query) {
        (None, _) => Query::None,
        (Some(_), None) => Query::Unasked,
        (Some(_), Some((Answer::Holds, _))) => Query::Holds,
        (Some(_), Some((Answer::Fails(what), _))) => Query::Fails(what),
        (Some(_), Some((Answer::Unknown(_), at))) if at.elapsed() >= PROMETHEUS_RETRY_DELAY => {
            Query::Unasked
        }
        (Some(_), Some((Answer::Unknown(why), _))) => Query::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_followed_by_a_pause_that_holds_no_change_for_long() {
        assert_eq!(pause_after(Duration::ZERO), POLL_INTERVAL);
        assert_eq!(
            pause_after(Duration::from_millis(100)),
            Duration::from_millis(1900)
        );
        assert_eq!(pause_after(Duration::from_secs(3)), MAX_PAUSE);
        assert_eq!(pause_after(Duration::MAX), MAX_PAUSE);
    }
}
