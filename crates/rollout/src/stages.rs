//! The stages of a rollout: when it advances, completes or is rolled back, and the commands to the
//! push thread.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::rollout::{Rollout, RolloutCommand, RolloutProgress};
use navarch_push::worker::Ended;
use navarch_status::SharedState;
use navarch_xds::connections::ConnectionInfo;
use navarch_xds::standing::Rejecting;
use tokio::time::Instant;

use super::RolloutController;
use super::proxy_counts::{Members, ProxyCounts};
use super::queries::query;
use super::representatives::{chosen, representatives};
use super::shared::MIN_STAGE;
use super::stage::{Next, StageView, limited_wait_left, next};

/// How long a rollout may last in addition to the pauses of its stages.
const ACKNOWLEDGEMENT_TIME: Duration = Duration::from_secs(7 * 86_400);

impl RolloutController {
    /// Checks a rollout at a stage, and applies the decision; `held` is why other replicas block it,
    /// if they do.
    pub(super) async fn check_stage(
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
        let rejecting = known.rejecting.clone();
        let since = known.since;
        let is_shared = self.shared.is_some();
        let tally = self
            .push
            .inspect(move |inspect| members.tally(inspect, &object, &rejecting, is_shared))
            .await?;

        let at_stage = since.elapsed();
        let without_evidence = tally.without_evidence();
        let are_limited = tally.pending_for_a_time > 0 || without_evidence > 0;
        let are_limited_late = are_limited && limited_wait_left(at_stage).is_none();
        let are_pending = tally.pending > 0 || are_limited && !are_limited_late;
        if let Some(shared) = &mut self.shared {
            shared.report_pending(name, are_pending).await;
        }
        if are_limited_late {
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
            without_evidence,
            contested: tally.contested.as_deref(),
            contested_for_a_time: tally.contested_for_a_time.as_deref(),
            rejected: tally.rejected.as_deref(),
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
            Next::Query => {
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

        let context = self.push.context();
        let proxies = representatives(&context, connections);
        let now = chosen(rollout, share, before, proxies);
        if now.iter().all(|one| before.contains(one)) {
            return Ok(());
        }

        self.send(
            name,
            RolloutCommand::Stage {
                serial: Some(rollout.serial),
                at: *at,
                chosen: Arc::new(now),
            },
        )
        .await
    }

    /// Logs, once for each stage, that it goes on without the answers of some proxies.
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
            outside = tally.pending_for_a_time, without_evidence = tally.without_evidence(),
            rejected = tally.contested_for_a_time.as_deref().map(tracing::field::display),
            "rollout: waits no longer for proxies outside its namespace, or without evidence of others, to acknowledge the change"
        );
    }

    /// Advances a rollout to a stage.
    pub(super) async fn enter(
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
        let context = self.push.context();
        let proxies = representatives(&context, connections);
        let chosen = chosen(rollout, share, before, proxies);

        let stage = at + 1;
        let stages = shares.len();
        let generation = rollout.generation;
        tracing::info!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation,
            stage, stages, %share, "rollout: advancing the change to this share of the proxies"
        );
        if let Some(known) = self.known.get_mut(name) {
            known.rejecting = Arc::new(Rejecting::of(connections));
        }

        self.send(
            name,
            RolloutCommand::Stage {
                serial: Some(rollout.serial),
                at,
                chosen: Arc::new(chosen),
            },
        )
        .await
    }

    /// Completes a rollout: all proxies get the new version.
    pub(super) async fn complete(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
    ) -> Result<(), Ended> {
        tracing::info!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation = rollout.generation,
            "rollout: complete; all proxies use the change"
        );
        self.send(
            name,
            RolloutCommand::Complete {
                serial: Some(rollout.serial),
            },
        )
        .await
    }

    /// Rolls back: all proxies get the previous version.
    pub(super) async fn stop(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
        reason: &str,
    ) -> Result<(), Ended> {
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation = rollout.generation,
            %reason, "rollout: stopped; all proxies get the previous version until the object is edited"
        );
        self.send(
            name,
            RolloutCommand::Stop {
                serial: Some(rollout.serial),
                reason: reason.into(),
            },
        )
        .await
    }

    /// Sends a command, and waits for its result.
    pub(super) async fn send(
        &mut self,
        name: &ObjectRef,
        command: RolloutCommand,
    ) -> Result<(), Ended> {
        self.push
            .change(vec![Change::Rollout(
                name.clone(),
                Arc::new(command.clone()),
            )])
            .await?;
        let is_done = |context: &Arc<PushContext>| match (&command, context.rollouts.get(name)) {
            (_, None) => true,
            (RolloutCommand::Stage { serial, at, chosen }, Some(rollout)) => {
                let there = RolloutProgress::Stage {
                    at: *at,
                    chosen: chosen.clone(),
                };
                Some(rollout.serial) != *serial || rollout.is_stopped() || rollout.progress == there
            }
            (RolloutCommand::Stop { serial, .. }, Some(rollout)) => {
                Some(rollout.serial) != *serial || rollout.is_stopped()
            }
            (RolloutCommand::Complete { serial }, Some(rollout)) => Some(rollout.serial) != *serial,
            (RolloutCommand::Restore { .. }, Some(_)) => true,
        };

        let sent = Instant::now();
        let outcome = self.push.contexts().wait_for(is_done).await.map(drop);
        self.waited += sent.elapsed();
        outcome.map_err(|_| Ended)
    }
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
