//! The loop of the controller: polls the proxies of all rollouts, and decides which ones begin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::rollout::slots::{Full, Slots};
use navarch_push::rollout::{Rollout, RolloutProgress};
use navarch_push::worker::Ended;
use navarch_status::SharedState;
use navarch_xds::connections::ConnectionInfo;
use navarch_xds::standing::Rejecting;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agree::Agreement;
use super::proxy_counts::ProxyCounts;
use super::shared::Shared;
use super::start::restored;
use super::{OperatorRequest, RolloutController, TrackedRollout};

/// Poll interval of the proxies' state.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Pause between polls, as a multiple of the duration of the last one: they take a twentieth of a
/// core at most.
const PAUSE_FACTOR: u32 = 19;
/// The longest pause between polls: for so long a change waits that may begin.
const MAX_PAUSE: Duration = Duration::from_secs(5);

impl RolloutController {
    /// Runs until `stop` is cancelled.
    pub(super) async fn run(
        mut self,
        mut received: mpsc::Receiver<OperatorRequest>,
        stop: CancellationToken,
    ) {
        let mut contexts = self.push.contexts();
        let mut due = Instant::now();

        loop {
            let is_idle = self.known.is_empty();
            let tidies_at = self.shared.as_ref().map_or(due, Shared::next_read);
            let event = async {
                tokio::select! {
                    command = received.recv() => command,
                    Some(answered) = self.queries.join_next() => {
                        self.record_query_result(answered.ok());
                        None
                    }
                    changed = contexts.changed(), if is_idle => { changed.ok(); None }
                    () = tokio::time::sleep_until(due), if !is_idle => None,
                    () = tokio::time::sleep_until(tidies_at), if is_idle && self.shared.is_some() => None,
                }
            };

            let Some(command) = stop.run_until_cancelled(event).await else {
                return;
            };

            let begun = Instant::now();
            let answered = match command {
                Some(request) => {
                    let result = self.run_command(&request.object, request.command).await;
                    Some((request.answer, result))
                }
                None => None,
            };

            if self.poll().await.is_err() {
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
    async fn poll(&mut self) -> Result<(), Ended> {
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
                    .change(missed.into_iter().filter_map(restored).collect())
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
                    self.check_stage(name, rollout, &context, &connections, held.as_deref())
                        .await?;
                }
            }
        }

        self.store_waiting(&context).await;
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
    pub(super) fn follow(
        &mut self,
        name: &ObjectRef,
        rollout: &Rollout,
        connections: &[ConnectionInfo],
    ) {
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
            rejecting: match (of_same, at) {
                (Some(known), _) => known.rejecting.clone(),
                // The stages of others began before this process knew them.
                (None, Some(_)) => Arc::new(Rejecting::of(connections)),
                // Looked at when its first stage begins: thousands may wait.
                (None, None) => Arc::default(),
            },
            tally: ProxyCounts::default(),
            is_going_on_logged: false,
            query: None,
            is_queried: false,
            reason: String::new(),
        };

        self.known.insert(name.clone(), fresh);
    }
}

/// The pause after a poll that has worked for this long.
fn pause_after(worked: Duration) -> Duration {
    worked
        .saturating_mul(PAUSE_FACTOR)
        .clamp(POLL_INTERVAL, MAX_PAUSE)
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
