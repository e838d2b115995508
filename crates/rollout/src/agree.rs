//! Applies decisions of other replicas, and stores the decisions of this one.

use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::rollout::{Rollout, RolloutCommand, RolloutProgress};
use navarch_push::worker::Ended;
use navarch_status::{SharedState, StoreError};
use navarch_xds::connections::ConnectionInfo;

use super::RolloutController;
use super::shared::StoredState;
use super::waiting::WaitingQueue;

/// Maximum number of waiting rollouts that one poll stores: it is as much later that other rollouts
/// go on, and that replicas report proxies that have not acknowledged a stage.
const MAX_STORED_AT_ONCE: usize = 16;

/// The outcome of other replicas' decisions about a rollout.
pub(super) enum Agreement {
    /// This replica decides.
    GoOn,
    /// It stays at its stage, for this reason.
    Held(String),
    /// Their decision was applied.
    Done,
}

impl RolloutController {
    /// Applies other replicas' decisions, and stores this replica's.
    pub(super) async fn agree(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
        context: &PushContext,
        connections: &[ConnectionInfo],
    ) -> Result<Agreement, Ended> {
        let (Some(shared), Some(new)) = (&self.shared, context.new_versions.any(name)) else {
            return Ok(Agreement::GoOn);
        };

        let serial = Some(rollout.serial);
        let here = &rollout.progress;
        match (shared.of(name, &new), here) {
            (StoredState::Unknown(error), _) => Ok(Agreement::Held(format!(
                "waits for the API server: {error}"
            ))),
            (StoredState::Unreadable(reason), _) => Ok(Agreement::Held(reason)),
            (StoredState::Newer, _) => Ok(Agreement::Held(
                "waits for this replica to read the next version, which other replicas have read"
                    .to_owned(),
            )),
            (
                StoredState::Nothing | StoredState::State(SharedState::Waiting),
                RolloutProgress::Waiting,
            ) => Ok(Agreement::GoOn),
            (
                StoredState::Nothing | StoredState::State(SharedState::Waiting),
                RolloutProgress::Stage { at, .. },
            ) => {
                let paused = self.known.get(name).is_some_and(|known| known.is_paused);
                self.decide(name, context, SharedState::Stage { at: *at, paused })
                    .await;
                Ok(Agreement::GoOn)
            }
            (StoredState::State(SharedState::Stopped { .. }), RolloutProgress::Stopped(_)) => {
                Ok(Agreement::GoOn)
            }
            (
                StoredState::Nothing
                | StoredState::State(SharedState::Waiting | SharedState::Stage { .. }),
                RolloutProgress::Stopped(reason),
            ) => {
                let reason = reason.to_string();
                self.decide(name, context, SharedState::Stopped { reason })
                    .await;
                Ok(Agreement::GoOn)
            }
            (StoredState::State(SharedState::Stopped { reason }), _) => {
                self.stop(name, rollout, &reason).await?;
                Ok(Agreement::Done)
            }
            (StoredState::State(SharedState::Complete { .. }), RolloutProgress::Stopped(_)) => {
                let before = shared.before(name).cloned();
                let command = RolloutCommand::Restore {
                    new,
                    before,
                    progress: RolloutProgress::Waiting,
                };
                self.send(name, command).await?;
                self.send(name, RolloutCommand::Complete { serial: None })
                    .await?;
                Ok(Agreement::Done)
            }
            (StoredState::State(SharedState::Complete { .. }), _) => {
                self.send(name, RolloutCommand::Complete { serial }).await?;
                Ok(Agreement::Done)
            }
            (StoredState::State(SharedState::Stage { at: theirs, paused }), _) => {
                if let Some(known) = self.known.get_mut(name) {
                    known.is_paused = paused;
                }

                let is_behind = !matches!(here, RolloutProgress::Stage { at, .. } if *at >= theirs);
                if is_behind {
                    self.enter(name, rollout, theirs, connections).await?;
                    return Ok(Agreement::Done);
                }

                let is_held = self
                    .shared
                    .as_ref()
                    .is_some_and(|shared| shared.is_waited_for(name));
                let why = || "waits for proxies of other replicas to acknowledge it".to_owned();

                Ok(if is_held {
                    Agreement::Held(why())
                } else {
                    Agreement::GoOn
                })
            }
        }
    }

    /// Stores a decision for other replicas. Returns whether it was stored and may be applied: not
    /// if another replica was first.
    pub(super) async fn decide(
        &mut self,
        name: &ObjectRef,
        context: &PushContext,
        state: SharedState,
    ) -> bool {
        let Some(shared) = &mut self.shared else {
            return true;
        };
        match shared.write(name, context, state).await {
            Ok(()) => true,
            Err(StoreError::Stale) => false,
            Err(error) => {
                self.note_reason(name, format!("waits for the API server: {error}"));
                false
            }
        }
    }

    /// Stores that changes wait, unless that is stored: a replica that starts would take them for
    /// ones that all proxies have. Of each namespace the first are stored, up to one that cannot be;
    /// the next poll goes on.
    pub(super) async fn store_waiting(&mut self, context: &PushContext) {
        if self.shared.is_none() {
            return;
        }
        let waiting = context
            .rollouts
            .iter()
            .filter(|(_, rollout)| rollout.progress == RolloutProgress::Waiting)
            .map(|(name, rollout)| (rollout.serial, name));
        let mut queue = WaitingQueue::new(waiting);

        for _ in 0..MAX_STORED_AT_ONCE {
            let Some(name) = queue.next(|name| self.stored_bytes(name, context)) else {
                break;
            };
            if !self.decide(name, context, SharedState::Waiting).await {
                queue.give_up(&name.name.namespace);
            }
        }
    }

    /// The size of what is stored about a change; `None` if nothing is.
    fn stored_bytes(&self, name: &ObjectRef, context: &PushContext) -> Option<usize> {
        let shared = self.shared.as_ref()?;
        let Some(new) = context.new_versions.any(name) else {
            return Some(0);
        };
        match shared.of(name, &new) {
            StoredState::Nothing => None,
            StoredState::State(_) => Some(shared.bytes(name)),
            // It is not known, and nothing can be stored now.
            StoredState::Unknown(_) | StoredState::Unreadable(_) | StoredState::Newer => Some(0),
        }
    }

    /// Records why a rollout does not advance.
    pub(super) fn note_reason(&mut self, name: &ObjectRef, reason: String) {
        if let Some(known) = self.known.get_mut(name) {
            known.reason = reason;
        }
    }
}
