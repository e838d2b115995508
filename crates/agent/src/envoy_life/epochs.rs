//! Envoy's processes. With hot restart there may be several: the newest takes over the sockets of
//! its predecessor, which drains and ends at the times that Envoy was given.
//!
//! ```text
//!  epoch 0 ─▶ command ─▶ epoch 1 initializes ─┬─ it takes over: epoch 0 drains, ends
//!                                             └─ it exits: epoch 0 goes on, epoch 1 is tried again,
//!                                                with the program of epoch 0 if another was on trial
//! ```
//!
//! Envoys hand over in steps: the successor takes the admin port when it starts, copies of the
//! listening sockets when it gets listeners, and tells its predecessor to drain when its workers
//! have started. The third epoch ends the first one. A successor that exits after the first step has
//! left its predecessor without an admin port, which only another epoch opens again.

use std::future::{Future as _, pending, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::task::Poll;
use std::time::Duration;

use navarch_base::regular_file;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::admin::AdminApi;
use super::process::Launch;
use super::shared_memory::SharedMemory;
use super::states::{EnvoyExit, NotStarted, ProgramStart, RunningEnvoy, RunningEnvoys};

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
    /// The beginning of the paths of the sockets over which Envoys hand over to each other. `None`
    /// is Envoy's default, abstract sockets, which every process of the network namespace can use.
    pub sockets: Option<PathBuf>,
    /// The memory by which Envoys exclude each other.
    pub shared_memory: SharedMemory,
    /// How long after its successor has become LIVE, and told it to drain, a process ends.
    pub parent_shutdown: Duration,
    /// Whether Envoy is replaced in place: a changed bootstrap starts the next epoch, and a crashed
    /// Envoy is started again, instead of ending the agent.
    pub in_place: bool,
}

/// The processes of one agent.
#[derive(Debug)]
pub(super) struct Epochs {
    admin: AdminApi,
    /// The program of the image, with which the agent has started.
    original: String,
    current: Process,
    /// Processes that drain, or that go on if their successor exits. Oldest first.
    previous: Vec<Process>,
    /// How many epochs have exited while their predecessor ran, since the last command.
    failures: u32,
    retry: Option<Retry>,
    trial: Option<Trial>,
    states: watch::Sender<RunningEnvoys>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    epoch: u32,
    launch: Launch,
    /// Whether the program is on trial: if it exits, the one before goes on.
    is_on_trial: bool,
    /// Whether its workers had started when its successor was started.
    is_initialized: bool,
}

/// The next epoch after one that has exited.
#[derive(Debug)]
struct Retry {
    at: Instant,
    launch: Launch,
}

/// A program that is not judged yet.
#[derive(Debug)]
struct Trial {
    /// The program that goes on if it does not stay.
    former: String,
    /// The arguments of the epoch that follows the trial.
    pending: Option<Vec<String>>,
}

/// What a task that waits for the processes sees first.
#[derive(Debug)]
pub(super) enum Event {
    CurrentExited(ExitStatus),
    PreviousExited(usize),
    RetryDue,
}

impl Epochs {
    /// Starts the first epoch.
    pub(super) fn start(
        launch: Launch,
        admin: AdminApi,
        states: watch::Sender<RunningEnvoys>,
    ) -> std::io::Result<Self> {
        let original = launch.program.clone();
        let current = Process::start(launch, 0, false)?;
        let new = Self {
            admin,
            original,
            current,
            previous: Vec::new(),
            failures: 0,
            retry: None,
            trial: None,
            states,
        };
        new.publish();
        Ok(new)
    }

    /// Starts a first epoch with other arguments, after all processes were killed. A program on trial
    /// is not started again.
    pub(super) fn restart(&mut self, arguments: Vec<String>) -> std::io::Result<()> {
        let mut launch = Launch {
            arguments,
            ..self.current.launch.clone()
        };
        if let Some(trial) = self.trial.take() {
            launch.program = trial.former;
        }
        let original = self.original.clone();
        *self = Self {
            original,
            ..Self::start(launch, self.admin.clone(), self.states.clone())?
        };
        Ok(())
    }

    /// Starts a first epoch in place of one that has crashed, perhaps with other arguments. A program
    /// that has replaced the image's own is not started again: it may crash for ever.
    pub(super) fn start_again(&mut self, arguments: Option<Vec<String>>) -> std::io::Result<()> {
        let arguments = arguments.unwrap_or_else(|| self.newest_arguments());
        self.current.launch.remove_shared_memory();
        self.states.send_modify(|all| all.restarts += 1);
        if self.trial.is_none() {
            self.current.launch.program.clone_from(&self.original);
        }
        self.restart(arguments)
    }

    /// Whether Envoy is replaced in place.
    pub(super) fn is_in_place(&self) -> bool {
        let hot_restart = self.current.launch.hot_restart.as_ref();
        hot_restart.is_some_and(|hot_restart| hot_restart.in_place)
    }

    /// Starts the next epoch, or lets it wait for the end of a trial. The current one goes on if it
    /// cannot be started.
    pub(super) async fn next(&mut self) {
        let arguments = self.newest_arguments();
        self.next_with(arguments).await;
    }

    /// As [`Self::next`], with other arguments.
    pub(super) async fn next_with(&mut self, arguments: Vec<String>) {
        if let Some(trial) = &mut self.trial {
            tracing::info!("the next epoch waits until the program on trial stays or goes");
            trial.pending = Some(arguments);
            return;
        }

        let newest = match self.retry.take() {
            Some(retry) => retry.launch,
            None => self.current.launch.clone(),
        };
        let launch = Launch {
            arguments,
            ..newest
        };
        if let Err(error) = self.begin(launch, false).await {
            tracing::debug!(%error, "the next epoch is tried again");
        }
    }

    /// Starts the next epoch with another program, on trial, or with the former one during a trial.
    /// Returns its number.
    pub(super) async fn next_program(
        &mut self,
        program: String,
    ) -> Result<ProgramStart, NotStarted> {
        let former = match &self.trial {
            Some(trial) => trial.former.clone(),
            None => self.current.launch.program.clone(),
        };
        let is_on_trial = program != former;
        let launch = Launch {
            program,
            ..self.current.launch.clone()
        };

        // An epoch with changed arguments that has exited is tried again after the trial.
        let retry = self.retry.take();
        let exits = self.states.borrow().exits;
        let epoch = match self.begin(launch, is_on_trial).await {
            Ok(epoch) => epoch,
            Err(error) => {
                self.retry = self.retry.take().or(retry);
                return Err(error.into());
            }
        };

        let pending = retry.map(|retry| retry.launch.arguments);
        self.trial.get_or_insert(Trial { former, pending });
        Ok(ProgramStart { epoch, exits })
    }

    /// Ends a trial: the newest program stays. Starts the epoch that has waited for that.
    pub(super) async fn accept(&mut self) {
        let trial = self.trial.take();
        if let Some(arguments) = trial.and_then(|trial| trial.pending) {
            self.next_with(arguments).await;
        }
    }

    /// Kills the newest epoch if it is on trial. The one before goes on, or is succeeded by another
    /// epoch of its program if it has given up its admin port already.
    pub(super) fn abandon(&mut self) {
        let is_on_trial = self.trial.is_some() && self.current.is_on_trial;
        if !is_on_trial || self.previous.is_empty() {
            return;
        }
        if let Err(error) = self.current.child.start_kill() {
            tracing::debug!(epoch = self.current.epoch, %error, "Envoy had exited already");
        }
    }

    /// The arguments of the epoch that was requested last, whether or not it runs yet.
    fn newest_arguments(&self) -> Vec<String> {
        let pending = self.trial.as_ref().and_then(|trial| trial.pending.as_ref());
        let retried = self.retry.as_ref().map(|retry| &retry.launch.arguments);
        let newest = pending.or(retried);
        newest.unwrap_or(&self.current.launch.arguments).clone()
    }

    /// Starts the next epoch on command. Returns its number.
    async fn begin(&mut self, launch: Launch, is_on_trial: bool) -> std::io::Result<u32> {
        self.failures = 0;
        self.retry = None;
        self.current.is_initialized = self.current_answers().await;
        self.try_next(launch, is_on_trial)
    }

    /// Whether the newest process is live and has the admin port.
    async fn current_answers(&self) -> bool {
        let server = self.admin.server().await;
        server.is_ok_and(|server| server.is_live && server.epoch == self.current.epoch)
    }

    /// Starts the next epoch; returns its number. One that cannot be started is tried again, unless
    /// it is on trial.
    fn try_next(&mut self, launch: Launch, is_on_trial: bool) -> std::io::Result<u32> {
        let epoch = self.current.epoch.saturating_add(1);
        match Process::start(launch.clone(), epoch, is_on_trial) {
            Ok(successor) => {
                let predecessor = std::mem::replace(&mut self.current, successor);
                self.previous.push(predecessor);
                self.publish();
                Ok(epoch)
            }
            Err(error) => {
                tracing::error!(epoch, %error, "failed to start the next epoch of Envoy");
                let exit = EnvoyExit {
                    epoch,
                    reason: error.to_string(),
                };
                self.publish_exit(exit);
                if !is_on_trial {
                    self.failures = self.failures.saturating_add(1);
                    self.schedule_retry(launch);
                }
                Err(error)
            }
        }
    }

    /// Does what an event asks for. Returns the exit status if the newest process has exited and none
    /// is left that can go on.
    pub(super) async fn handle(&mut self, event: Event) -> Option<ExitStatus> {
        match event {
            Event::RetryDue => {
                if let Some(retry) = self.retry.take()
                    && let Err(error) = self.try_next(retry.launch, false)
                {
                    tracing::debug!(%error, "the next epoch is tried again");
                }
                None
            }
            Event::PreviousExited(index) => {
                let Process { epoch, .. } = self.previous.remove(index);
                tracing::info!(epoch, "a previous epoch of Envoy exited");
                self.publish();
                None
            }
            Event::CurrentExited(status) => {
                let Some(predecessor) = self.previous.pop() else {
                    // Who judges a program on trial is to see that it is gone.
                    if self.trial.is_some() {
                        self.publish_exit(self.current.exit(status));
                    }
                    return Some(status);
                };

                let is_over = self.go_back(predecessor, status).await;
                is_over.then_some(status)
            }
        }
    }

    /// Goes on with the process before the one that has exited. Returns whether epochs have exited
    /// so often that none is tried again: the predecessor may have closed its listeners already, and
    /// is killed.
    async fn go_back(&mut self, predecessor: Process, status: ExitStatus) -> bool {
        let exited = std::mem::replace(&mut self.current, predecessor);
        tracing::error!(epoch = exited.epoch, %status, "Envoy exited; the epoch before goes on");
        self.publish_exit(exited.exit(status));
        self.publish();

        self.failures = self.failures.saturating_add(1);
        if self.failures > MAX_RETRIES {
            self.kill().await;
            return true;
        }

        // Whatever the exited process has kept the others from is over.
        if self.current.is_initialized {
            self.current.launch.clear_initializing();
        }
        if !exited.is_on_trial {
            self.schedule_retry(exited.launch);
            return false;
        }

        // An Envoy hands over its admin port before its listeners.
        let pending = self.trial.take().and_then(|trial| trial.pending);
        if pending.is_some() || !self.current_answers().await {
            let mut launch = self.current.launch.clone();
            launch.arguments = pending.unwrap_or(launch.arguments);
            self.schedule_retry(launch);
        }
        false
    }

    /// Waits for what happens first. Nothing is lost if the caller stops waiting.
    pub(super) async fn event(&mut self) -> std::io::Result<Event> {
        let retry_at = self.retry.as_ref().map(|retry| retry.at);
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

    fn schedule_retry(&mut self, launch: Launch) {
        if self.failures > MAX_RETRIES {
            return;
        }
        let doublings = self.failures.saturating_sub(1);
        let wait = FIRST_RETRY.saturating_mul(1 << doublings);
        self.retry = Some(Retry {
            at: Instant::now() + wait,
            launch,
        });
    }

    /// Kills all processes and waits for them.
    pub(super) async fn kill(&mut self) {
        for process in self.previous.iter_mut().chain([&mut self.current]) {
            if let Err(error) = process.child.kill().await {
                tracing::debug!(epoch = process.epoch, %error, "Envoy had exited already");
            }
        }
        self.previous.clear();
        self.current.launch.remove_shared_memory();
        tracing::info!("Envoy exited");
    }

    /// Shows an exit to the rest of the agent.
    fn publish_exit(&self, exit: EnvoyExit) {
        self.states.send_modify(|all| {
            all.last_exit = Some(exit);
            all.exits = all.exits.saturating_add(1);
        });
    }

    /// Shows the running processes to the rest of the agent.
    fn publish(&self) {
        let current = self.current.state();
        let draining = self.previous.iter().map(Process::state).collect();
        self.states.send_modify(|all| {
            all.current = Some(current);
            all.draining = draining;
        });
    }
}

impl Process {
    /// Starts an epoch.
    fn start(launch: Launch, epoch: u32, is_on_trial: bool) -> std::io::Result<Self> {
        let arguments = match epoch {
            0 => launch.first_epoch(),
            later => launch.later_epoch(later)?,
        };
        Ok(Self {
            child: launch.start(&arguments)?,
            epoch,
            launch,
            is_on_trial,
            is_initialized: false,
        })
    }

    fn exit(&self, status: ExitStatus) -> EnvoyExit {
        EnvoyExit {
            epoch: self.epoch,
            reason: status.to_string(),
        }
    }

    fn state(&self) -> RunningEnvoy {
        RunningEnvoy {
            epoch: self.epoch,
            process: self.child.id(),
            program: self.launch.program.clone(),
        }
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
        arguments.extend(hot_restart.arguments());
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
        arguments.extend(hot_restart.arguments());
        Ok(arguments)
    }

    /// Clears the flag of an epoch that has exited before it was initialized.
    fn clear_initializing(&self) {
        let Some(hot_restart) = &self.hot_restart else {
            return;
        };
        let cleared = read_base_id(&hot_restart.base_id)
            .and_then(|base_id| hot_restart.shared_memory.clear_initializing(base_id));
        if let Err(error) = cleared {
            tracing::warn!(%error, "failed to prepare the shared memory of Envoy for another epoch");
        }
    }

    fn remove_shared_memory(&self) {
        if let Some(hot_restart) = &self.hot_restart
            && let Ok(base_id) = read_base_id(&hot_restart.base_id)
        {
            hot_restart.shared_memory.remove(base_id);
        }
    }
}

impl HotRestart {
    /// How epochs hand over to each other: the same in each, as both sides use it.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--parent-shutdown-time-s".to_owned(),
            self.parent_shutdown.as_secs().to_string(),
        ];
        if let Some(sockets) = &self.sockets {
            arguments.extend([
                "--socket-path".to_owned(),
                sockets.to_string_lossy().into_owned(),
                "--socket-mode".to_owned(),
                "600".to_owned(),
            ]);
        }
        arguments
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
