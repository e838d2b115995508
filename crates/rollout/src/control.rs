//! The commands of operators, and the status that they see.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use navarch_answers::rollout::{RolloutState, Rollouts};
use navarch_api::object::ObjectRef;
use navarch_push::rollout::Rollout;

/// In requests the words `pause`, `promote`, `promote-full` and `abort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// It stays at its current stage.
    Pause,
    /// It proceeds to the next stage now.
    Promote,
    /// All proxies get the new version now.
    PromoteFull,
    /// All proxies get the previous version.
    Abort,
}

/// A command, and the channel for its result.
#[derive(Debug)]
pub struct OperatorRequest {
    /// The object whose change is rolled out.
    pub object: ObjectRef,
    /// The operator's command.
    pub command: OperatorCommand,
    /// Where the result is sent.
    pub answer: oneshot::Sender<Result<(), RolloutError>>,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    /// The rollout does not exist.
    #[error("{0} has no rollout in progress; navarch rollout status lists those in progress")]
    Unknown(ObjectRef),
    /// The rollout can no longer be paused or promoted.
    #[error(
        "the rollout of {0} was stopped and all proxies use the previous version: edit the object to start again"
    )]
    Stopped(ObjectRef),
    /// The command could not be stored for other replicas.
    #[error("failed to store the command for other replicas: {0}")]
    NotKept(String),
}

/// Access to the controller, for the pages and commands of operators.
#[derive(Clone, Debug)]
pub struct RolloutControl {
    /// The channel for commands.
    pub commands: mpsc::Sender<OperatorRequest>,
    /// The staged rollouts at this control plane; empty if there are none.
    pub status: watch::Receiver<Arc<Rollouts>>,
}

impl OperatorCommand {
    /// Parses a command.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "pause" => Some(Self::Pause),
            "promote" => Some(Self::Promote),
            "promote-full" => Some(Self::PromoteFull),
            "abort" => Some(Self::Abort),
            _ => None,
        }
    }
}

impl RolloutControl {
    /// The reported state of an object's rollout: waiting if it is not reported yet.
    #[must_use]
    pub fn state(&self, name: &ObjectRef, rollout: &Rollout) -> RolloutState {
        if rollout.is_stopped() {
            return RolloutState::Stopped;
        }
        let status = self.status.borrow();
        let name = name.to_string();
        let report = status
            .rollouts
            .iter()
            .find(|report| report.object == name && report.state != RolloutState::Stopped);
        report.map_or(RolloutState::Waiting, |report| report.state)
    }
}
