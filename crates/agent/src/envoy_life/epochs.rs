//! Envoy's processes. With hot restart there may be several: the newest takes over the sockets of
//! its predecessor, which drains and ends at the times that Envoy was given.
//!
//! ```text
//!  epoch 0 ─▶ command ─▶ epoch 1 initializes ─┬─ it takes over: epoch 0 drains, ends
//!                                             └─ it exits: epoch 0 goes on, epoch 1 is tried again
//! ```

use std::future::{Future as _, pending, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::task::Poll;
use std::time::Duration;

use navarch_api::regular_file;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

use super::process::Launch;

/// How often an epoch that exits is tried again, as by the agents of Istio 0.8.
const MAX_RETRIES: u32 = 10;
/// The wait before the first retry; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(200);

/// Settings of Envoy's hot restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRestart {
    /// The file to which the first epoch writes its base id, by which later ones find it. No two
    /// Envoys of a network namespace have the same.
    pub base_id: PathBuf,
    /// How long after the start of its successor a process ends.
    pub parent_shutdown: Duration,
}

/// The processes of one agent.
#[derive(Debug)]
pub(super) struct Epochs {
    launch: Launch,
    current: Process,
    /// Processes that drain, or that go on if their successor exits. Oldest first.
    previous: Vec<Process>,
    /// How many epochs have exited while their predecessor ran, since the last command.
    failures: u32,
    /// When the next epoch is tried again.
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    epoch: u32,
}

/// What a task that waits for the processes sees first.
enum Event {
    CurrentExited(ExitStatus),
    PreviousExited(usize),
    RetryDue,
}

impl Epochs {
    /// Starts the first epoch.
    pub(super) fn start(launch: Launch) -> std::io::Result<Self> {
        let current = Process {
            child: launch.start(&launch.first_epoch())?,
            epoch: 0,
        };
        Ok(Self {
            launch,
            current,
            previous: Vec::new(),
            failures: 0,
            retry_at: None,
        })
    }

    /// Starts a first epoch with other arguments, after all processes were killed.
    pub(super) fn restart(&mut self, arguments: Vec<String>) -> std::io::Result<()> {
        let launch = Launch {
            arguments,
            ..self.launch.clone()
        };
        *self = Self::start(launch)?;
        Ok(())
    }

    /// Starts the next epoch. The current one goes on if that fails.
    pub(super) fn next(&mut self) {
        self.failures = 0;
        self.retry_at = None;
        self.try_next();
    }

    fn try_next(&mut self) {
        let epoch = self.current.epoch.saturating_add(1);
        let started = self
            .launch
            .later_epoch(epoch)
            .and_then(|arguments| self.launch.start(&arguments));

        match started {
            Ok(child) => {
                let successor = Process { child, epoch };
                let predecessor = std::mem::replace(&mut self.current, successor);
                self.previous.push(predecessor);
            }
            Err(error) => {
                tracing::error!(epoch, %error, "failed to start the next epoch of Envoy");
                self.failures = self.failures.saturating_add(1);
                self.schedule_retry();
            }
        }
    }

    /// Waits until the newest process has exited and none is left that can go on.
    ///
    /// Nothing is lost if the caller stops waiting.
    pub(super) async fn exit(&mut self) -> std::io::Result<ExitStatus> {
        loop {
            match self.event().await? {
                Event::RetryDue => {
                    self.retry_at = None;
                    self.try_next();
                }
                Event::PreviousExited(index) => {
                    let Process { epoch, .. } = self.previous.remove(index);
                    tracing::info!(epoch, "a previous epoch of Envoy exited");
                }
                Event::CurrentExited(status) => {
                    let Some(predecessor) = self.previous.pop() else {
                        return Ok(status);
                    };
                    let epoch = self.current.epoch;
                    tracing::error!(epoch, %status, "Envoy exited; the epoch before goes on");
                    self.current = predecessor;
                    self.failures = self.failures.saturating_add(1);

                    // The predecessor may have closed its listeners already.
                    if self.failures > MAX_RETRIES {
                        self.kill().await;
                        return Ok(status);
                    }
                    self.schedule_retry();
                }
            }
        }
    }

    async fn event(&mut self) -> std::io::Result<Event> {
        let retry_at = self.retry_at;
        let retry_due = async {
            match retry_at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };

        tokio::select! {
            status = self.current.child.wait() => status.map(Event::CurrentExited),
            index = first_exit(&mut self.previous) => Ok(Event::PreviousExited(index)),
            () = retry_due => Ok(Event::RetryDue),
        }
    }

    fn schedule_retry(&mut self) {
        if self.failures > MAX_RETRIES {
            return;
        }
        let doublings = self.failures.saturating_sub(1);
        let wait = FIRST_RETRY.saturating_mul(1 << doublings);
        self.retry_at = Some(Instant::now() + wait);
    }

    /// Kills all processes and waits for them.
    pub(super) async fn kill(&mut self) {
        for process in self.previous.iter_mut().chain([&mut self.current]) {
            if let Err(error) = process.child.kill().await {
                tracing::debug!(epoch = process.epoch, %error, "Envoy had exited already");
            }
        }
        self.previous.clear();
        tracing::info!("Envoy exited");
    }
}

impl Launch {
    /// Envoy's further arguments in its first epoch.
    fn first_epoch(&self) -> Vec<String> {
        let Some(hot_restart) = &self.hot_restart else {
            return Vec::new();
        };
        let base_id = hot_restart.base_id.to_string_lossy().into_owned();
        let mut arguments = vec![
            "--use-dynamic-base-id".to_owned(),
            "--base-id-path".to_owned(),
            base_id,
        ];
        arguments.extend(hot_restart.shutdown_arguments());
        arguments
    }

    /// Those in a later one.
    fn later_epoch(&self, epoch: u32) -> std::io::Result<Vec<String>> {
        let Some(hot_restart) = &self.hot_restart else {
            return Err(std::io::Error::other(
                "Envoy was started without hot restart",
            ));
        };
        let base_id = read_base_id(&hot_restart.base_id)?;
        let mut arguments = vec![
            "--base-id".to_owned(),
            base_id.to_string(),
            "--restart-epoch".to_owned(),
            epoch.to_string(),
        ];
        arguments.extend(hot_restart.shutdown_arguments());
        Ok(arguments)
    }
}

impl HotRestart {
    fn shutdown_arguments(&self) -> [String; 2] {
        [
            "--parent-shutdown-time-s".to_owned(),
            self.parent_shutdown.as_secs().to_string(),
        ]
    }
}

/// The base id that the first epoch wrote.
fn read_base_id(path: &Path) -> std::io::Result<u32> {
    let text = regular_file::read_text(path)?;
    text.trim().parse().map_err(|_| {
        let reason = format!("{} does not have the base id of Envoy yet", path.display());
        std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
    })
}

/// Waits for the first exit; gives its index. A process whose status cannot be read is taken as
/// exited.
async fn first_exit(processes: &mut [Process]) -> usize {
    poll_fn(|context| {
        let exited = processes
            .iter_mut()
            .position(|process| pin!(process.child.wait()).poll(context).is_ready());
        exited.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
