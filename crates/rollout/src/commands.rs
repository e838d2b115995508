//! Commands of operators.

use jiff::Timestamp;
use navarch_api::object::ObjectRef;
use navarch_push::rollout::RolloutProgress;
use navarch_status::SharedState;

use super::{OperatorCommand, RolloutController, RolloutError};

/// The reason of a rollout that an operator aborted.
const ABORT_REASON: &str = "aborted by an operator";

impl RolloutController {
    /// Runs an operator's command.
    pub(super) async fn run_command(
        &mut self,
        name: &ObjectRef,
        command: OperatorCommand,
    ) -> Result<(), RolloutError> {
        let context = self.push.context();
        let rollout = context
            .rollouts
            .get(name)
            .ok_or_else(|| RolloutError::Unknown(name.clone()))?;
        if rollout.is_stopped() {
            return if command == OperatorCommand::Abort {
                Ok(())
            } else {
                Err(RolloutError::Stopped(name.clone()))
            };
        }

        let connections = self.connections.list();
        self.follow(name, rollout, &connections);
        let (at, next) = match rollout.progress {
            RolloutProgress::Stage { at, .. } => (at, at + 1),
            RolloutProgress::Waiting | RolloutProgress::Stopped(_) => (0, 0),
        };
        let is_last = next >= rollout.plan.stages.shares().len();
        let complete = || SharedState::Complete {
            since: Timestamp::now(),
        };

        let state = match command {
            OperatorCommand::Pause if rollout.share().is_none() => SharedState::Waiting,
            OperatorCommand::Pause => SharedState::Stage { at, paused: true },
            OperatorCommand::Promote if is_last => complete(),
            OperatorCommand::Promote => SharedState::Stage {
                at: next,
                paused: false,
            },
            OperatorCommand::PromoteFull => complete(),
            OperatorCommand::Abort => SharedState::Stopped {
                reason: ABORT_REASON.to_owned(),
            },
        };

        // The controller stores what waits.
        let is_kept = state != SharedState::Waiting;
        if let Some(shared) = self.shared.as_mut().filter(|_| is_kept) {
            let kept = shared.write_until_success(name, &context, &state).await;
            kept.map_err(|error| RolloutError::NotKept(error.to_string()))?;
        }

        if let Some(known) = self.known.get_mut(name) {
            known.is_paused = command == OperatorCommand::Pause;
        }

        let done = match state {
            SharedState::Waiting => Ok(()),
            SharedState::Stage { .. } if command == OperatorCommand::Pause => Ok(()),
            SharedState::Stage { at, .. } => self.enter(name, rollout, at, &connections).await,
            SharedState::Complete { .. } => self.complete(name, rollout).await,
            SharedState::Stopped { .. } => self.stop(name, rollout, ABORT_REASON).await,
        };

        done.map_err(|error| RolloutError::NotKept(error.to_string()))
    }
}
