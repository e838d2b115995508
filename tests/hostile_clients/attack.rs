//! An attacker: a thread of low priority, as a real attacker would not use the server's CPU.

use std::future::Future;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use tokio::sync::oneshot;

/// A running attack, which returns a note about its outcome.
pub(crate) struct Attack(oneshot::Receiver<Result<String>>);

impl Attack {
    pub(crate) fn start<F>(attack: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<String>>,
    {
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            let thread = nix::unistd::gettid().to_string();
            let nice = Command::new("renice")
                .args(["-n", "10", "-p", &thread])
                .stdout(Stdio::null())
                .status();
            let outcome = nice.context("cannot run renice").and_then(|_| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(attack())
            });
            drop(sender.send(outcome));
        });
        Self(receiver)
    }

    /// Waits until the attack ends.
    pub(crate) async fn end(self) -> Result<String> {
        self.0.await.context("the attacker panicked")?
    }
}
