//! Commands of operators.

use jiff::Timestamp;
use navarch_api::object::ObjectRef;
use navarch_push::rollout::RolloutProgress;
use navarch_status::KeptState;

use super::Work;
use crate::admin::{OperatorOrder, RolloutRefusal};

/// The reason of a rollout that an operator aborted.
const ABORTED: &str = "aborted by an operator";

impl Work {
    /// Runs an operator's command.
    pub(super) async fn carry_out(&mut self, name: &ObjectRef, order: OperatorOrder) -> Result<(), RolloutRefusal> {
        let context = self.push.context();
        let rollout = context.rollouts.get(name).ok_or_else(|| RolloutRefusal::Unknown(name.clone()))?;
        if rollout.is_stopped() {
            return if order == OperatorOrder::Abort { Ok(()) } else { Err(RolloutRefusal::Stopped(name.clone())) };
        }
        let connections = self.connections.list();
        self.follow(name, rollout, &connections);
        let (at, next) = match rollout.progress {
            RolloutProgress::Stage { at, .. } => (at, at + 1),
            RolloutProgress::Waiting | RolloutProgress::Stopped(_) => (0, 0),
        };
        let is_last = next >= rollout.plan.stages.shares().len();
        let complete = || KeptState::Complete { since: Timestamp::now() };
        let state = match order {
            OperatorOrder::Pause => KeptState::Stage { at, paused: true },
            OperatorOrder::Promote if is_last => complete(),
            OperatorOrder::Promote => KeptState::Stage { at: next, paused: false },
            OperatorOrder::PromoteFull => complete(),
            OperatorOrder::Abort => KeptState::Stopped { reason: ABORTED.to_owned() },
        };
        // Pausing a rollout that has not started yet does not store a stage.
        let is_kept = order != OperatorOrder::Pause || rollout.share().is_some();
        if let Some(shared) = self.shared.as_mut().filter(|_| is_kept) {
            let kept = shared.insist(name, &context, &state).await;
            kept.map_err(|error| RolloutRefusal::NotKept(error.to_string()))?;
        }
        if let Some(known) = self.known.get_mut(name) {
            known.is_paused = order == OperatorOrder::Pause;
        }
        let done = match state {
            KeptState::Stage { .. } if order == OperatorOrder::Pause => Ok(()),
            KeptState::Stage { at, .. } => self.enter(name, rollout, at, &connections).await,
            KeptState::Complete { .. } => self.complete(name, rollout).await,
            KeptState::Stopped { .. } => self.stop(name, rollout, ABORTED).await,
        };
        done.map_err(|error| RolloutRefusal::NotKept(error.to_string()))
    }
}
