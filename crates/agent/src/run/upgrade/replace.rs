//! One attempt: starts a program, follows it until it stays or goes, and goes back if it fails.

use std::path::Path;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::{LOOK_INTERVAL, NotReplaced, Refusal, Upgrades};
use crate::envoy_life::{EnvoyCommand, ProgramStart, RunningEnvoy};
use crate::upgrade::attempt::{Attempt, Before, Failure, Observation, Verdict};
use crate::upgrade::status::{ErrorShares, UpgradeState};

/// Interval at which the requests of a new Envoy are counted, whose answer is large in large meshes.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// How much longer than it may drain an Envoy is waited for.
const DRAIN_SLACK: Duration = Duration::from_secs(30);

impl Upgrades {
    /// Replaces the running Envoy by a program, and judges it.
    pub(super) async fn replace(&mut self, text: &str, program: &Path) -> Result<(), NotReplaced> {
        self.wait_for_drain(text).await;
        let old = self.wait_until_live().await?;
        let before = self.before(&old).await;

        self.begin(text, UpgradeState::Starting, "");
        let new = self.next_program(program.display().to_string()).await?;

        let limits = self.config.limits;
        let mut attempt = Attempt::new(new.epoch, limits, before, Instant::now());
        let mut next_count = Instant::now();
        let mut is_judging = false;
        loop {
            sleep(LOOK_INTERVAL).await;
            let mut seen = self.observe(new).await;
            if is_judging && Instant::now() >= next_count {
                let counted = self.admin.requests().await;
                let share = ErrorShares::describe(&counted);
                self.status.update(|status| status.errors.after = share);
                seen.requests = counted.ok();
                next_count = Instant::now() + COUNT_INTERVAL;
            }

            match attempt.observe(Instant::now(), &seen) {
                Verdict::Starting => {}
                Verdict::Judging => {
                    if !is_judging {
                        self.begin(text, UpgradeState::Judging, "");
                        self.show_running().await;
                    }
                    is_judging = true;
                }
                Verdict::Stays => {
                    self.accept().await;
                    return Ok(());
                }
                Verdict::FailedBefore(failure) => {
                    self.abandon(&failure).await;
                    return Err(failure.into());
                }
                Verdict::FailedAfter(failure) => {
                    self.go_back(&old, &failure).await;
                    return Err(failure.into());
                }
            }
        }
    }

    /// Waits until no Envoy drains any more: a third one would end it, with its connections.
    async fn wait_for_drain(&mut self, text: &str) {
        if self.running.borrow().draining.is_empty() {
            return;
        }
        self.begin(text, UpgradeState::Waiting, "");
        let limit = self.config.drain.saturating_add(DRAIN_SLACK);
        let is_over = self.running.wait_for(|all| all.draining.is_empty());
        if timeout(limit, is_over).await.is_err() {
            tracing::warn!(?limit, "an Envoy still drains; the next one ends it");
        }
    }

    /// Waits until the running Envoy is LIVE, so that it can hand over.
    pub(super) async fn wait_until_live(&self) -> Result<RunningEnvoy, Refusal> {
        let end = Instant::now() + self.config.limits.start;
        loop {
            let current = self.current().ok_or(Refusal::Ending)?;
            let server = self.admin.server().await;
            if server.is_ok_and(|server| server.is_live && server.epoch == current.epoch) {
                return Ok(current);
            }
            if Instant::now() >= end {
                return Err(Refusal::NotLive);
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// The measurements of the old Envoy.
    async fn before(&self, old: &RunningEnvoy) -> Before {
        let counted = self.admin.requests().await;
        let share = ErrorShares::describe(&counted);
        self.status.update(|status| status.errors.before = share);
        Before {
            requests: counted.ok(),
            report: old.process.and_then(|process| self.envoys.report(process)),
        }
    }

    /// Starts a program as the next epoch.
    async fn next_program(&self, program: String) -> Result<ProgramStart, Refusal> {
        let (started, answer) = oneshot::channel();
        let command = EnvoyCommand::NextProgram { program, started };
        if self.commands.send(command).await.is_err() {
            return Err(Refusal::Ending);
        }
        let answer = answer.await.map_err(|_| Refusal::Ending)?;
        Ok(answer?)
    }

    /// Lets what has waited for the end of the trial begin.
    async fn accept(&self) {
        // Without a receiver Envoy is about to end.
        let _ = self.commands.send(EnvoyCommand::Accept).await;
    }

    /// What is seen of the new Envoy.
    async fn observe(&self, started: ProgramStart) -> Observation {
        let running = self.running.borrow().clone();
        let ProgramStart { epoch, exits } = started;
        let has_exited = running.exits != exits;
        let new = running.current.filter(|envoy| envoy.epoch == epoch);
        let process = new.and_then(|envoy| envoy.process);
        Observation {
            exit: running
                .last_exit
                .filter(|exit| has_exited && exit.epoch == epoch)
                .map(|exit| exit.reason),
            server: self.admin.server().await.ok(),
            report: process.and_then(|process| self.envoys.report(process)),
            requests: None,
        }
    }

    /// Kills the new Envoy, which has not taken over. If it has exited, the former one goes on
    /// already.
    async fn abandon(&mut self, failure: &Failure) {
        if !matches!(failure, Failure::Exited(_)) {
            // Without a receiver Envoy is about to end.
            let _ = self.commands.send(EnvoyCommand::Abandon).await;
        }
        self.wait_for_service().await;
    }

    /// Starts another epoch of the former program, to which the new Envoy hands over. If it has
    /// exited, that is done already.
    async fn go_back(&mut self, old: &RunningEnvoy, failure: &Failure) {
        tracing::warn!(reason = %failure, program = old.program, "going back to the former Envoy");
        if !matches!(failure, Failure::Exited(_)) {
            let started = self.next_program(old.program.clone()).await;
            if let Err(refusal) = started {
                tracing::error!(reason = %refusal, "the former Envoy does not take over");
            }
        }
        self.wait_for_service().await;
    }

    /// Waits until an Envoy is LIVE again, for the status and for what has waited for the end of the
    /// trial; it serves meanwhile.
    async fn wait_for_service(&mut self) {
        sleep(LOOK_INTERVAL).await;
        if let Err(refusal) = self.wait_until_live().await {
            tracing::error!(reason = %refusal, "no Envoy is live after a failed upgrade");
        }
        self.accept().await;
        self.show_running().await;
    }
}
