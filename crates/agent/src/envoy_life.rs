//! Envoy's life cycle: start, drain, end. Envoy never outlives the agent.
//!
//! ```text
//!  start ─▶ running ─┬─ Envoy ends by itself ─────────────────────▶ over (its exit code)
//!                    ├─ SIGTERM ─▶ draining ─┬─ time, or no connection ─▶ killed ─▶ over
//!                    │                       └─ Envoy ends by itself ──────────────▶ over
//!                    ├─ /drain, later SIGTERM ─▶ killed at once ──▶ over
//!                    ├─ /quitquitquit ─▶ killed at once ──────────▶ over
//!                    ├─ another bootstrap ─▶ draining ─▶ killed ──▶ started anew
//!                    ├─ the next epoch ─▶ a successor takes over; the process drains and ends
//!                    └─ another program ─▶ the same, on trial
//! ```
//!
//! While a program is on trial, another bootstrap and the next epoch wait until it stays or goes:
//! otherwise they would start a program that may not stay, and end the one that it hands back to.
//!
//! If Envoy is replaced in place, another bootstrap starts the next epoch, too, and an Envoy that
//! crashes is started again.
//!
//! The process is started through the agent's own program, which asks the kernel to kill it with
//! the agent.

mod admin;
mod crashes;
mod drain;
mod epochs;
mod process;
mod shared_memory;
mod states;

pub use admin::{AdminApi, RequestCount, ServerInfo};
pub use drain::DrainPlan;
pub use epochs::HotRestart;
pub use process::Launch;
pub use shared_memory::SharedMemory;
pub use states::{EnvoyExit, NotStarted, ProgramStart, RunningEnvoy, RunningEnvoys};

use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use crashes::{Crashes, MAX_RESTARTS};
use epochs::Epochs;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

/// Commands to the task that runs Envoy.
#[derive(Debug)]
pub enum EnvoyCommand {
    /// Drain, and keep running until a command to terminate.
    Drain,
    /// Drain, then end.
    Terminate,
    /// End at once.
    Quit,
    /// Start with other arguments: after a drain, or as the next epoch if Envoy is replaced in
    /// place. It waits while a program is on trial.
    Restart(Vec<String>),
    /// Start another process with the same arguments, which takes over by hot restart. It waits
    /// while a program is on trial.
    NextEpoch,
    /// Start another program with the same arguments, which takes over by hot restart. It is on
    /// trial until `Accept`; if it exits, or is killed by `Abandon`, the program before goes on.
    /// A program that follows on trial takes over from it, as on the way back to the one before.
    NextProgram {
        /// The absolute path of an executable file.
        program: String,
        /// Receives the number of the new epoch.
        started: oneshot::Sender<Result<ProgramStart, NotStarted>>,
    },
    /// The trial is over, as the program stays, or the one before runs again: what has waited for
    /// that begins.
    Accept,
    /// Kill the program that was started by the last `NextProgram`, so that the one before goes on.
    Abandon,
}

/// How Envoy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvoyEnd {
    /// On command.
    OnCommand,
    /// By itself, with this exit code; 128 and the number for a signal.
    ByItself(i32),
}

/// What the task that runs Envoy does next.
enum After {
    /// Look at the processes.
    Event(std::io::Result<epochs::Event>),
    /// A command; `None` when the command channel is closed.
    Command(Option<EnvoyCommand>),
}

/// What a wait before a restart ends with.
enum CrashWait {
    /// Envoy is started again, with these arguments if a command has changed them.
    Over(Option<Vec<String>>),
    /// Envoy was to drain, and is not started again.
    Drained,
    /// A command to end has come.
    Ended,
}

/// A command to end that comes while Envoy drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndCommand {
    /// When it has drained.
    Terminate,
    /// At once.
    Quit,
}

impl EnvoyCommand {
    /// Whether it ends Envoy.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.end().is_some()
    }

    fn end(&self) -> Option<EndCommand> {
        match self {
            Self::Terminate => Some(EndCommand::Terminate),
            Self::Quit => Some(EndCommand::Quit),
            Self::Drain
            | Self::Restart(_)
            | Self::NextEpoch
            | Self::NextProgram { .. }
            | Self::Accept
            | Self::Abandon => None,
        }
    }
}

/// Runs an Envoy until it exits or a command ends it. Commands may come at any time; redundant
/// ones, such as a second SIGTERM, are ignored. `states` shows which processes run.
///
/// # Errors
/// When the program cannot be started.
pub async fn keep(
    launch: Launch,
    plan: &DrainPlan,
    commands: &mut mpsc::Receiver<EnvoyCommand>,
    states: watch::Sender<RunningEnvoys>,
) -> std::io::Result<EnvoyEnd> {
    let keeper = Keeper {
        epochs: Epochs::start(launch, plan.admin.clone(), states)?,
        crashes: Crashes::default(),
        drained: false,
        plan,
        commands,
    };
    keeper.run().await
}

/// The task that runs Envoy.
struct Keeper<'a> {
    epochs: Epochs,
    crashes: Crashes,
    /// Whether Envoy was drained, so that it is about to end.
    drained: bool,
    plan: &'a DrainPlan,
    commands: &'a mut mpsc::Receiver<EnvoyCommand>,
}

impl Keeper<'_> {
    async fn run(mut self) -> std::io::Result<EnvoyEnd> {
        loop {
            let after = tokio::select! {
                event = self.epochs.event() => After::Event(event),
                command = self.commands.recv() => After::Command(command),
            };

            let end = match after {
                After::Event(event) => match self.epochs.handle(event?).await {
                    Some(status) => self.exited(exit_code(status)).await?,
                    None => None,
                },
                After::Command(command) => self.carry_out(command).await?,
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Starts a crashed Envoy again if it is replaced in place, or returns how it has ended.
    async fn exited(&mut self, code: i32) -> std::io::Result<Option<EnvoyEnd>> {
        let is_restarted = self.epochs.is_in_place() && code != 0 && !self.drained;
        let delay = self.crashes.delay(Instant::now()).filter(|_| is_restarted);
        let Some(delay) = delay else {
            return Ok(Some(EnvoyEnd::ByItself(code)));
        };

        tracing::error!(
            code,
            ?delay,
            max = MAX_RESTARTS,
            "Envoy exited; starting it again"
        );
        match wait_for_restart(delay, self.commands).await {
            CrashWait::Over(arguments) => {
                self.epochs.start_again(arguments)?;
                Ok(None)
            }
            CrashWait::Drained => Ok(Some(EnvoyEnd::ByItself(code))),
            CrashWait::Ended => Ok(Some(EnvoyEnd::OnCommand)),
        }
    }

    /// Carries out a command to a running Envoy. Returns how Envoy has ended by it.
    async fn carry_out(
        &mut self,
        command: Option<EnvoyCommand>,
    ) -> std::io::Result<Option<EnvoyEnd>> {
        match command {
            Some(EnvoyCommand::Drain) => {
                self.plan.drain(drain::AfterDrain::GoOn).await;
                self.drained = true;
            }
            Some(EnvoyCommand::Restart(arguments)) => return self.restart(arguments).await,
            Some(EnvoyCommand::NextEpoch) => {
                if !self.drained {
                    self.epochs.next().await;
                }
            }
            Some(EnvoyCommand::NextProgram { program, started }) => {
                let answer = match self.drained {
                    true => Err(NotStarted::Draining),
                    false => self.epochs.next_program(program).await,
                };
                // Who asked may have stopped waiting.
                let _ = started.send(answer);
            }
            Some(EnvoyCommand::Accept) => self.epochs.accept().await,
            Some(EnvoyCommand::Abandon) => self.epochs.abandon(),
            Some(EnvoyCommand::Quit) => {
                self.epochs.kill().await;
                return Ok(Some(EnvoyEnd::OnCommand));
            }
            Some(EnvoyCommand::Terminate) | None => {
                self.end_gracefully().await?;
                return Ok(Some(EnvoyEnd::OnCommand));
            }
        }

        Ok(None)
    }

    /// Starts Envoy with other arguments: as the next epoch, or after a drain.
    async fn restart(&mut self, arguments: Vec<String>) -> std::io::Result<Option<EnvoyEnd>> {
        if self.epochs.is_in_place() && !self.drained {
            tracing::info!("the bootstrap has changed: the next epoch of Envoy follows");
            self.epochs.next_with(arguments).await;
            return Ok(None);
        }

        tracing::info!("restarting Envoy with a changed bootstrap");
        let ended_by = self.end_gracefully().await?;
        if ended_by.is_some() {
            return Ok(Some(EnvoyEnd::OnCommand));
        }
        self.epochs.restart(arguments)?;
        self.drained = false;
        Ok(None)
    }

    /// Drains, waits as configured, and kills. If Envoy was drained before, there is no wait.
    /// Returns the command to end that came meanwhile: an Envoy that drains for a restart is not
    /// started again then.
    async fn end_gracefully(&mut self) -> std::io::Result<Option<EndCommand>> {
        let mut ended_by = None;
        if !self.drained {
            let mut drain = pin!(self.plan.drain_and_wait());
            while ended_by != Some(EndCommand::Quit) {
                let event = tokio::select! {
                    event = self.epochs.event() => event?,
                    () = &mut drain => break,
                    command = next_end_command(self.commands) => {
                        ended_by = Some(command);
                        continue;
                    }
                };
                if let Some(status) = self.epochs.handle(event).await {
                    tracing::info!(?status, "Envoy exited while draining");
                    return Ok(ended_by);
                }
            }
        }

        self.epochs.kill().await;
        Ok(ended_by)
    }
}

/// Waits before a crashed Envoy is started again. A command that arrives meanwhile is fulfilled by
/// the start, is answered, or ends the wait.
async fn wait_for_restart(
    delay: Duration,
    commands: &mut mpsc::Receiver<EnvoyCommand>,
) -> CrashWait {
    let mut changed = None;
    let mut over = pin!(sleep(delay));
    loop {
        let command = tokio::select! {
            () = &mut over => return CrashWait::Over(changed),
            command = commands.recv() => command,
        };
        match command {
            Some(EnvoyCommand::Restart(arguments)) => changed = Some(arguments),
            // As if it had crashed after the drain.
            Some(EnvoyCommand::Drain) => return CrashWait::Drained,
            Some(EnvoyCommand::NextProgram { started, .. }) => {
                // Who asked may have stopped waiting.
                let _ = started.send(Err(NotStarted::Crashed));
            }
            // The start reads changed files, and no program is on trial any more.
            Some(EnvoyCommand::NextEpoch | EnvoyCommand::Accept | EnvoyCommand::Abandon) => {}
            Some(EnvoyCommand::Terminate | EnvoyCommand::Quit) | None => return CrashWait::Ended,
        }
    }
}

/// Waits for a command to end; others are without effect on an Envoy that ends. It stays pending
/// when the command channel is closed.
async fn next_end_command(commands: &mut mpsc::Receiver<EnvoyCommand>) -> EndCommand {
    loop {
        match commands.recv().await {
            Some(command) => {
                if let Some(end) = command.end() {
                    return end;
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// The exit code; 128 plus the signal number if a signal ended the process, as in shells.
fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = status.signal();
    if signal == Some(nix::sys::signal::Signal::SIGKILL as i32) {
        tracing::warn!("Envoy was killed: it may have been out of memory");
    }
    status
        .code()
        .or(signal.map(|signal| 128 + signal))
        .unwrap_or(1)
}

#[cfg(test)]
mod tests;
