//! Converts signals to commands.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::envoy_life::EnvoyCommand;

/// The signals that end the agent.
#[derive(Debug)]
pub(super) struct Signals {
    /// SIGTERM.
    terminate: Signal,
    /// SIGINT.
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers.
    pub(super) fn take() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Sends a command to terminate for every signal. It never returns while commands are received.
pub(super) async fn commands(mut signals: Signals, give: mpsc::Sender<EnvoyCommand>) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => {}
            _ = signals.interrupt.recv() => {}
        }
        tracing::info!("received SIGTERM or SIGINT");
        if give.send(EnvoyCommand::Terminate).await.is_err() {
            return;
        }
    }
}
