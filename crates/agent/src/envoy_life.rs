//! Envoy's life: started, told to drain, ended; never left behind.
//!
//! ```text
//!  start ─▶ running ─┬─ Envoy ends by itself ─────────────────────▶ over (its exit code)
//!                    ├─ SIGTERM ─▶ draining ─┬─ time, or no connection ─▶ killed ─▶ over
//!                    │                       └─ Envoy ends by itself ──────────────▶ over
//!                    ├─ /drain, later SIGTERM ─▶ killed at once ──▶ over
//!                    ├─ /quitquitquit ─▶ killed at once ──────────▶ over
//!                    └─ another bootstrap ─▶ draining ─▶ killed ──▶ started anew
//! ```
//!
//! The process is started through the agent's own program, which asks the kernel to kill it with the agent.

mod drain;
mod process;

pub use drain::{AdminApi, DrainPlan};
pub use process::Launch;

use std::process::ExitStatus;

use tokio::process::Child;
use tokio::sync::mpsc;

/// What Envoy's keeper is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Drain and go on until told to end.
    Drain,
    /// Drain, then end.
    Terminate,
    /// End at once.
    Quit,
    /// Drain, then start with other arguments.
    Restart(Vec<String>),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it was told.
    OnOrder,
    /// By itself, with this exit code; 128 and the number for a signal.
    ByItself(i32),
}

/// What ended a run.
enum After {
    /// The process, by itself.
    Exit(std::io::Result<ExitStatus>),
    /// An order; `None` when nobody can give one any more.
    Order(Option<Order>),
}

/// Keeps an Envoy running until it ends or is told to. Orders may come at any time; those that lose their meaning, such as a
/// second SIGTERM, are passed over.
///
/// # Errors
/// When the program cannot be started.
pub async fn keep(mut launch: Launch, plan: &DrainPlan, orders: &mut mpsc::Receiver<Order>) -> std::io::Result<Ended> {
    let mut child = launch.start()?;
    let mut drained = false;
    loop {
        let after = tokio::select! {
            status = child.wait() => After::Exit(status),
            order = orders.recv() => After::Order(order),
        };
        match after {
            After::Exit(status) => return status.map(|status| Ended::ByItself(exit_code(status))),
            After::Order(Some(Order::Drain)) => {
                plan.drain(drain::Afterwards::GoOn).await;
                drained = true;
            }
            After::Order(Some(Order::Restart(arguments))) => {
                tracing::info!("restarting Envoy with a changed bootstrap");
                end_gracefully(&mut child, plan, orders, drained).await?;
                launch.arguments = arguments;
                (child, drained) = (launch.start()?, false);
            }
            After::Order(Some(Order::Quit)) => {
                kill(&mut child).await?;
                return Ok(Ended::OnOrder);
            }
            After::Order(Some(Order::Terminate) | None) => {
                end_gracefully(&mut child, plan, orders, drained).await?;
                return Ok(Ended::OnOrder);
            }
        }
    }
}

/// Drains, waits as planned, and kills. Where Envoy has drained before, nobody waits for it any more.
async fn end_gracefully(
    child: &mut Child,
    plan: &DrainPlan,
    orders: &mut mpsc::Receiver<Order>,
    drained: bool,
) -> std::io::Result<()> {
    if !drained {
        tokio::select! {
            status = child.wait() => {
                tracing::info!(status = ?status?, "Envoy exited while draining");
                return Ok(());
            }
            () = plan.drain_and_wait() => {}
            () = told_to_quit(orders) => {}
        }
    }
    kill(child).await
}

/// Until told to end at once. When nobody gives orders any more it never is.
async fn told_to_quit(orders: &mut mpsc::Receiver<Order>) {
    loop {
        match orders.recv().await {
            Some(Order::Quit) => return,
            Some(Order::Drain | Order::Terminate | Order::Restart(_)) => {}
            None => std::future::pending().await,
        }
    }
}

/// Kills the process and takes its end.
async fn kill(child: &mut Child) -> std::io::Result<()> {
    child.kill().await?;
    tracing::info!("Envoy exited");
    Ok(())
}

/// The exit code, or as shells have it 128 and the number of the signal.
fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = status.signal();
    if signal == Some(nix::sys::signal::Signal::SIGKILL as i32) {
        tracing::warn!("Envoy was killed: it may have been out of memory");
    }
    status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests;
