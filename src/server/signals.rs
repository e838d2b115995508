//! Signal handling.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::boot::{Boot, until};

/// Handles the signals from this call on, also while Navarch starts: SIGTERM and SIGINT cancel the
/// returned token, SIGUSR1 notifies `reload`. It is called before any port responds: a signal
/// without a handler would end the process at once, and clients that got a response expect a
/// graceful shutdown.
pub(super) fn follow(reload: Arc<Notify>, boot: &mut Boot) -> CancellationToken {
    let ends = CancellationToken::new();
    let stop = boot.stop.clone();
    let origin = ends.clone();
    let handlers = Handlers::register();
    boot.spawn("signals", async move {
        if until(&stop, handlers.termination(&reload)).await.is_some() {
            origin.cancel();
            stop.cancelled().await;
        }
    });
    ends
}

/// The handlers of the supported signals; `None` if one could not be registered.
struct Handlers {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    reload: Option<Signal>,
}

impl Handlers {
    fn register() -> Self {
        Self {
            terminate: listen(SignalKind::terminate()),
            interrupt: listen(SignalKind::interrupt()),
            reload: listen(SignalKind::user_defined1()),
        }
    }

    /// Waits for SIGTERM or SIGINT; SIGUSR1 notifies `reload` meanwhile.
    async fn termination(mut self, reload: &Notify) {
        loop {
            tokio::select! {
                () = receive(&mut self.terminate) => return,
                () = receive(&mut self.interrupt) => return,
                () = receive(&mut self.reload) => {
                    tracing::info!("received SIGUSR1; reloading all files");
                    reload.notify_one();
                }
            }
        }
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    signal(kind)
        .inspect_err(|error| tracing::error!(%error, "failed to register a signal handler"))
        .ok()
}

/// The next signal; pending forever if it has no handler.
async fn receive(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}
