//! The status of rollouts, for operators.

use std::sync::Arc;

use navarch_answers::rollout::{Rollout as RolloutReport, RolloutState, Rollouts};
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::rollout::{Rollout, RolloutProgress};

use super::stage::limited_wait_left;
use super::{RolloutController, TrackedRollout};

impl RolloutController {
    /// Publishes the status of all rollouts.
    pub(super) fn publish_status(&self, context: &PushContext) {
        let one = |(name, rollout): (&ObjectRef, &Arc<Rollout>)| {
            let known = self
                .known
                .get(name)
                .filter(|known| known.serial == rollout.serial);
            report(name, rollout, known)
        };
        let now = Rollouts {
            rollouts: context.rollouts.iter().map(one).collect(),
        };
        self.status_sender.send_if_modified(|current| {
            let is_new = **current != now;
            if is_new {
                *current = Arc::new(now);
            }
            is_new
        });
    }
}

fn report(name: &ObjectRef, rollout: &Rollout, known: Option<&TrackedRollout>) -> RolloutReport {
    let (state, stage) = match &rollout.progress {
        RolloutProgress::Waiting => (RolloutState::Waiting, 0),
        RolloutProgress::Stage { at, .. } if known.is_some_and(|known| known.is_paused) => {
            (RolloutState::Paused, at + 1)
        }
        RolloutProgress::Stage { at, .. } => (RolloutState::Rolling, at + 1),
        RolloutProgress::Stopped(_) => (RolloutState::Stopped, 0),
    };

    let reason = match &rollout.progress {
        RolloutProgress::Stopped(reason) => reason.to_string(),
        RolloutProgress::Waiting | RolloutProgress::Stage { .. } => {
            known.map(|known| known.reason.clone()).unwrap_or_default()
        }
    };

    let tally = known
        .filter(|_| stage > 0)
        .map(|known| known.tally.clone())
        .unwrap_or_default();
    let at_stage = known.map(|known| known.since.elapsed()).unwrap_or_default();
    let left_behind = match limited_wait_left(at_stage) {
        Some(_) => 0,
        None => tally.pending_for_a_time,
    };

    RolloutReport {
        object: name.to_string(),
        generation: rollout.generation,
        before: rollout.before,
        state,
        stage,
        stages: rollout
            .plan
            .stages
            .shares()
            .iter()
            .map(ToString::to_string)
            .collect(),
        seconds: at_stage.as_secs_f64(),
        reached: tally.reached,
        taken: tally.taken,
        rejected_before: tally.rejected_before,
        pending_proxies: tally.pending_proxies,
        without_identity: tally.without_identity,
        left_behind,
        reason,
    }
}
