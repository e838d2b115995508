//! Commands of operators that rotate the roots.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::super::rotation::{CommandRejection, Origin, RootSet};
use super::status::RotationStatus;
use super::{KeeperError, RootKeeper};

/// A command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationCommand {
    /// Generate a new root and distribute it; it signs once all proxies trust it.
    Begin,
    /// Sign with the distributed root now, if all proxies trust it.
    Switch,
    /// Sign with the distributed root now, even if proxies lose their connections.
    SwitchRegardless,
}

/// Why a command was not executed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The command is not safe, or there is nothing to do.
    #[error(transparent)]
    Rejected(#[from] CommandRejection),
    /// The roots were not reconciled before, and why.
    #[error("{0}")]
    NotReconciled(String),
    /// The command failed.
    #[error(transparent)]
    Failed(#[from] KeeperError),
    /// Another replica took a step at the same time.
    #[error("another replica changed the roots first; check the status and try again")]
    Conflict,
    /// This control plane has no keeper.
    #[error("this server has no CA, so there are no roots to rotate")]
    NoKeeper,
}

/// A command that waits for its result.
pub(super) struct PendingCommand {
    pub(super) command: RotationCommand,
    /// The channel of the result.
    pub(super) answer: oneshot::Sender<Result<(), RotateError>>,
}

/// Sends commands to the keeper, and returns its status. Clones belong to the same keeper.
#[derive(Clone, Debug)]
pub struct RotationCommands {
    /// Commands to the keeper.
    sender: mpsc::Sender<PendingCommand>,
    /// The status from the keeper.
    status: watch::Receiver<Arc<RotationStatus>>,
}

impl std::fmt::Debug for PendingCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingCommand")
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

impl RotationCommands {
    /// Connects to a keeper.
    pub(super) fn new(
        sender: mpsc::Sender<PendingCommand>,
        status: watch::Receiver<Arc<RotationStatus>>,
    ) -> Self {
        Self { sender, status }
    }

    /// As last published by the keeper. Does not wait.
    #[must_use]
    pub fn status(&self) -> Arc<RotationStatus> {
        self.status.borrow().clone()
    }

    /// Sends a command and waits for its result.
    ///
    /// # Errors
    /// If the command is rejected or fails.
    pub async fn send(&self, command: RotationCommand) -> Result<(), RotateError> {
        let (answer, answered) = oneshot::channel();
        let pending = PendingCommand { command, answer };
        self.sender
            .send(pending)
            .await
            .map_err(|_| RotateError::NoKeeper)?;
        answered.await.map_err(|_| RotateError::NoKeeper)?
    }
}

impl RootKeeper {
    pub(super) async fn execute(&mut self, command: RotationCommand) -> Result<(), RotateError> {
        if let Some(problem) = &self.problem {
            return Err(RotateError::NotReconciled(problem.clone()));
        }

        let next = self.set_after(command)?;
        self.store(next.clone()).await?;
        if self.set != next {
            return Err(RotateError::Conflict);
        }

        tracing::info!(?command, "root rotation command done");
        Ok(())
    }

    /// The set that a command leads to.
    fn set_after(&self, command: RotationCommand) -> Result<RootSet, RotateError> {
        let now = (self.config.clock)();
        let rules = &self.config.rules;
        let next = match command {
            RotationCommand::Begin if self.set.origin == Origin::PluggedIn => {
                Err(CommandRejection::PluggedIn)
            }
            RotationCommand::Begin if self.set.next.is_some() => Err(CommandRejection::UnderWay),
            RotationCommand::Begin => {
                let root = (self.config.make)(now).map_err(KeeperError::from)?;
                self.set
                    .begin(root, Origin::SelfSigned, rules, now)
                    .map_err(KeeperError::from)?
            }
            RotationCommand::Switch if self.set.next.is_some() && !self.missing.is_empty() => {
                Err(CommandRejection::Missing(self.missing.clone()))
            }
            RotationCommand::Switch | RotationCommand::SwitchRegardless => {
                self.set.switch(rules, now).map_err(KeeperError::from)?
            }
        };

        Ok(next?)
    }
}
