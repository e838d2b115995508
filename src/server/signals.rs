//! What the process is told by signals.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Tasks, spawn, until};

/// Follows the signals from now on, also while Navarch starts: SIGTERM and SIGINT cancel the token that is given, SIGUSR1 notifies
/// `reload`.
pub(super) fn follow(reload: Arc<Notify>, stop: &CancellationToken, tasks: &mut Tasks) -> CancellationToken {
    let (told, stop) = (CancellationToken::new(), stop.clone());
    let origin = told.clone();
    spawn("signals", tasks, async move {
        if until(&stop, until_told_to_end(&reload)).await.is_some() {
            origin.cancel();
            stop.cancelled().await;
        }
        Ok(())
    });
    told
}

/// Waits for SIGTERM or SIGINT; SIGUSR1 notifies `reload` meanwhile.
async fn until_told_to_end(reload: &Notify) {
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate()), listen(SignalKind::interrupt()));
    let mut again = listen(SignalKind::user_defined1());
    loop {
        tokio::select! {
            () = receive(&mut terminate) => return,
            () = receive(&mut interrupt) => return,
            () = receive(&mut again) => {
                tracing::info!("SIGHUP: reading all files again");
                reload.notify_one();
            }
        }
    }
}

/// Listens for a signal.
fn listen(kind: SignalKind) -> Option<Signal> {
    signal(kind).inspect_err(|error| tracing::error!(%error, "failed to register a signal handler")).ok()
}

/// The next signal; never, where it cannot be listened for.
async fn receive(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}
