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
pub use states::{EnvoyExit, RunningEnvoy, RunningEnvoys};

use std::pin::pin;
use std::process::ExitStatus;

use crashes::{Crashes, MAX_RESTARTS};
use epochs::Epochs;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

/// Commands to the task that runs Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvoyCommand {
    /// Drain, and keep running until a command to terminate.
    Drain,
    /// Drain, then end.
    Terminate,
    /// End at once.
    Quit,
    /// Start with other arguments: after a drain, or as the next epoch if Envoy is replaced in
    /// place.
    Restart(Vec<String>),
    /// Start another process with the same arguments, which takes over by hot restart.
    NextEpoch,
    /// Start another program with the same arguments, which takes over by hot restart. If it exits,
    /// the program before goes on.
    NextProgram(String),
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

/// Why a run ended.
enum After {
    /// The process, by itself.
    Exit(std::io::Result<ExitStatus>),
    /// A command; `None` when the command channel is closed.
    Command(Option<EnvoyCommand>),
}

/// A command to end that comes while Envoy drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndCommand {
    /// When it has drained.
    Terminate,
    /// At once.
    Quit,
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
    let mut epochs = Epochs::start(launch, plan.admin.clone(), states)?;
    let mut crashes = Crashes::default();
    let mut drained = false;

    loop {
        let after = tokio::select! {
            status = epochs.exit() => After::Exit(status),
            command = commands.recv() => After::Command(command),
        };
        match after {
            After::Exit(status) => {
                let code = exit_code(status?);
                let is_restarted = epochs.is_in_place() && code != 0 && !drained;
                let delay = crashes.delay(Instant::now()).filter(|_| is_restarted);
                let Some(delay) = delay else {
                    return Ok(EnvoyEnd::ByItself(code));
                };

                tracing::error!(
                    code,
                    ?delay,
                    max = MAX_RESTARTS,
                    "Envoy exited; starting it again"
                );
                tokio::select! {
                    () = sleep(delay) => {}
                    _ = next_end_command(commands) => return Ok(EnvoyEnd::OnCommand),
                }
                epochs.start_again()?;
            }
            After::Command(Some(EnvoyCommand::Drain)) => {
                plan.drain(drain::AfterDrain::GoOn).await;
                drained = true;
            }
            After::Command(Some(EnvoyCommand::Restart(arguments)))
                if epochs.is_in_place() && !drained =>
            {
                tracing::info!("starting the next epoch of Envoy with a changed bootstrap");
                epochs.next_with(arguments).await;
            }
            After::Command(Some(EnvoyCommand::Restart(arguments))) => {
                tracing::info!("restarting Envoy with a changed bootstrap");
                let ended_by = end_gracefully(&mut epochs, plan, commands, drained).await?;
                if ended_by.is_some() {
                    return Ok(EnvoyEnd::OnCommand);
                }
                epochs.restart(arguments)?;
                drained = false;
            }
            // A drained Envoy is about to end.
            After::Command(Some(EnvoyCommand::NextEpoch | EnvoyCommand::NextProgram(_)))
                if drained => {}
            After::Command(Some(EnvoyCommand::NextEpoch)) => epochs.next().await,
            After::Command(Some(EnvoyCommand::NextProgram(program))) => {
                epochs.next_program(program).await;
            }
            After::Command(Some(EnvoyCommand::Abandon)) => epochs.abandon(),
            After::Command(Some(EnvoyCommand::Quit)) => {
                epochs.kill().await;
                return Ok(EnvoyEnd::OnCommand);
            }
            After::Command(Some(EnvoyCommand::Terminate) | None) => {
                end_gracefully(&mut epochs, plan, commands, drained).await?;
                return Ok(EnvoyEnd::OnCommand);
            }
        }
    }
}

/// Drains, waits as configured, and kills. If Envoy was drained before, there is no wait. Returns
/// the command to end that came meanwhile: an Envoy that drains for a restart is not started again
/// then.
async fn end_gracefully(
    epochs: &mut Epochs,
    plan: &DrainPlan,
    commands: &mut mpsc::Receiver<EnvoyCommand>,
    drained: bool,
) -> std::io::Result<Option<EndCommand>> {
    let mut ended_by = None;
    if !drained {
        let mut drain = pin!(plan.drain_and_wait());
        while ended_by != Some(EndCommand::Quit) {
            tokio::select! {
                status = epochs.exit() => {
                    tracing::info!(status = ?status?, "Envoy exited while draining");
                    return Ok(ended_by);
                }
                () = &mut drain => break,
                command = next_end_command(commands) => ended_by = Some(command),
            }
        }
    }

    epochs.kill().await;
    Ok(ended_by)
}

/// Waits for a command to end; others are without effect on an Envoy that ends. It stays pending
/// when the command channel is closed.
async fn next_end_command(commands: &mut mpsc::Receiver<EnvoyCommand>) -> EndCommand {
    loop {
        match commands.recv().await {
            Some(EnvoyCommand::Terminate) => return EndCommand::Terminate,
            Some(EnvoyCommand::Quit) => return EndCommand::Quit,
            Some(
                EnvoyCommand::Drain
                | EnvoyCommand::Restart(_)
                | EnvoyCommand::NextEpoch
                | EnvoyCommand::NextProgram(_)
                | EnvoyCommand::Abandon,
            ) => {}
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
