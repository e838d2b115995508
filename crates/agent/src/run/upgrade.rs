//! Follows the annotation that asks for another version of Envoy: fetches, checks and starts the
//! program, judges it, and goes back if it fails.

mod replace;
mod settings;

pub(super) use settings::config;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::files;
use super::prepare::Prepared;
use super::watch as watched;
use crate::Clock;
use crate::ads::EnvoyStreams;
use crate::downward_api::ANNOTATIONS_FILE;
use crate::envoy_life::{AdminApi, EnvoyCommand, NotStarted, RunningEnvoy, RunningEnvoys};
use crate::metrics::AgentMetrics;
use crate::upgrade::artefact::{ArtefactError, FetchRules, Store};
use crate::upgrade::attempt::Failure;
use crate::upgrade::program::{ProgramCheck, ProgramError, short_version};
use crate::upgrade::status::{SharedStatus, UpgradeState};
use crate::upgrade::wanted::{Wanted, WantedError, admitted};
use crate::upgrade::{ANNOTATION, ENABLED_VARIABLE, UpgradeConfig};
use navarch_base::file_events::{FileEvents, WATCHED_INTERVAL};

/// Interval at which a new Envoy is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Interval at which the annotation is read while it has no effect.
const DISABLED_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of attempts after a program was refused for a reason that may pass.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// What the task needs of the rest of the agent.
pub(super) struct Upgrades {
    pub(super) config: UpgradeConfig,
    pub(super) admin: AdminApi,
    pub(super) commands: mpsc::Sender<EnvoyCommand>,
    pub(super) running: watch::Receiver<RunningEnvoys>,
    pub(super) envoys: EnvoyStreams,
    pub(super) status: SharedStatus,
    pub(super) metrics: AgentMetrics,
    pub(super) clock: Clock,
}

/// A program that has passed its judgement.
struct Accepted {
    /// The annotation that asked for it.
    wanted: String,
    program: PathBuf,
}

/// Why a program is refused before it is started.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    /// The annotation, or the file that it names.
    #[error(transparent)]
    Wanted(#[from] WantedError),
    /// Artefacts are not admitted.
    #[error("artefacts need the operator's public key: set NAVARCH_PROXY_UPGRADE_KEY")]
    NoKey,
    /// The configured key cannot be used.
    #[error("{0}")]
    Key(String),
    /// It cannot be fetched, or is not what the operator has signed.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// It cannot take over from the one that runs.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The override of the bootstrap is invalid at the moment.
    #[error("the bootstrap override is invalid")]
    Override,
    /// The old Envoy could not hand over.
    #[error("the running Envoy is not LIVE, and cannot hand over")]
    NotLive,
    /// The handover could not be requested.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// Envoy is about to end.
    #[error("the agent is shutting down")]
    Ending,
}

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
enum NotReplaced {
    /// It was not started.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It was started, and did not stay.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl NotReplaced {
    fn state(&self) -> UpgradeState {
        match self {
            Self::Refused(_) => UpgradeState::Refused,
            Self::Failed(_) => UpgradeState::Failed,
        }
    }

    /// Whether the same program may run a minute later.
    fn is_temporary(&self) -> bool {
        let Self::Refused(refusal) = self else {
            return false;
        };
        match refusal {
            Refusal::NotLive | Refusal::Override | Refusal::NotStarted(NotStarted::Crashed) => true,
            Refusal::Artefact(error) => error.is_temporary(),
            Refusal::Wanted(_)
            | Refusal::NoKey
            | Refusal::Key(_)
            | Refusal::Program(_)
            | Refusal::NotStarted(_)
            | Refusal::Ending => false,
        }
    }
}

/// The value of the annotation; empty without one. `None` if the annotations cannot be read.
fn annotation() -> Option<String> {
    let annotations = files::downward(ANNOTATIONS_FILE)?;
    Some(annotations.get(ANNOTATION).cloned().unwrap_or_default())
}

/// Warns once if the annotation asks for something while replacing Envoy is disabled.
async fn warn_without_effect() {
    loop {
        if annotation().is_some_and(|wanted| !wanted.is_empty()) {
            tracing::warn!(
                annotation = ANNOTATION,
                "the annotation has no effect: set {ENABLED_VARIABLE}=true in proxyMetadata, and start the pod again"
            );
            break;
        }
        sleep(DISABLED_INTERVAL).await;
    }
    std::future::pending().await
}

impl Upgrades {
    /// Follows the annotation if Envoy is replaced in place; otherwise it has no effect. Does not
    /// return.
    pub(super) async fn run(self, prepared: &Prepared) {
        if prepared.settings.replaces_in_place {
            self.follow(prepared).await;
        } else {
            warn_without_effect().await;
        }
    }

    /// Follows the annotation once Envoy is LIVE. Does not return. A change during an attempt is
    /// looked at after it.
    async fn follow(mut self, prepared: &Prepared) {
        let mut events = FileEvents::of_files([Path::new(ANNOTATIONS_FILE)]);
        let mut handled = String::new();
        let mut retry_at = None;
        let mut accepted: Option<Accepted> = None;
        self.status.update(|status| status.enabled = true);
        while self.wait_until_live().await.is_err() {
            sleep(LOOK_INTERVAL).await;
        }
        // What an earlier container has left is fetched and verified again.
        self.remove_unused();

        loop {
            self.show_running().await;
            if let Some(lost) = accepted.take_if(|accepted| !self.runs(&accepted.program)) {
                self.show_lost(&lost);
            }

            let is_due = retry_at.is_some_and(|at| Instant::now() >= at);
            if let Some(wanted) = annotation()
                && (wanted != handled || is_due)
            {
                let outcome = self.attempt(&wanted, prepared).await;
                let is_temporary = outcome.as_ref().is_err_and(NotReplaced::is_temporary);
                retry_at = is_temporary.then(|| Instant::now() + RETRY_INTERVAL);
                accepted = outcome.ok().map(|program| Accepted {
                    wanted: wanted.clone(),
                    program,
                });
                handled = wanted;
                continue;
            }

            tokio::select! {
                () = events.wait(WATCHED_INTERVAL) => {}
                changed = self.running.changed() => if changed.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Makes an attempt for one value of the annotation. Returns the program that runs.
    async fn attempt(&mut self, text: &str, prepared: &Prepared) -> Result<PathBuf, NotReplaced> {
        self.begin(text, UpgradeState::Fetching, "");
        let outcome = match self.program(text, prepared).await {
            Ok(program) if self.runs(&program) => Ok(program),
            Ok(program) => self.replace(text, &program).await.map(|()| program),
            Err(refusal) => Err(NotReplaced::Refused(refusal)),
        };

        match &outcome {
            Ok(_) => {
                tracing::info!(wanted = text, "Envoy runs as the annotation asks");
                self.begin(text, UpgradeState::Done, "");
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::error!(wanted = text, reason, "Envoy was not replaced");
                self.begin(text, error.state(), &reason);
            }
        }
        self.remove_unused();
        outcome
    }

    /// Shows that a program does not run any more: it has exited while the former Envoy drained, and
    /// another epoch of the former program has followed.
    fn show_lost(&self, lost: &Accepted) {
        let reason = "the new Envoy exited after it was judged; the former program runs again";
        tracing::error!(wanted = lost.wanted, reason, "Envoy was replaced again");
        self.begin(&lost.wanted, UpgradeState::Failed, reason);
    }

    fn begin(&self, wanted: &str, state: UpgradeState, reason: &str) {
        let now = (self.clock)();
        self.status.begin(wanted, state, reason, now);
        if let Some(result) = state.result() {
            self.metrics.proxy_upgraded(result);
        }
    }

    /// The program for a value of the annotation, if it may run and can take over.
    async fn program(&self, text: &str, prepared: &Prepared) -> Result<PathBuf, Refusal> {
        let config = &self.config;
        let path = match Wanted::parse(text)? {
            Wanted::Original => config.original.clone(),
            Wanted::Path(path) => admitted(&path, &config.folders, config.user)?,
            Wanted::Artefact(name) => {
                let keys = match &config.keys {
                    None => return Err(Refusal::NoKey),
                    Some(Err(error)) => return Err(Refusal::Key(error.to_string())),
                    Some(Ok(keys)) => keys,
                };
                let store = Store::new(config.store.clone());
                let rules = FetchRules {
                    keys,
                    pull_secret: config.pull_secret.as_ref(),
                    timeout: config.limits.fetch,
                };
                let path = store.program(&name, rules).await?;
                // Who else can write to the store may have put something else there.
                admitted(&path, std::slice::from_ref(&config.store), config.user)?;
                path
            }
        };
        if self.runs(&path) {
            return Ok(path);
        }

        let check = ProgramCheck { user: config.user };
        let running = self.current().map(|envoy| envoy.program);
        let running = running.ok_or(Refusal::Ending)?;
        check.takes_over(Path::new(&running), &path).await?;

        let arguments = watched::arguments(prepared).ok_or(Refusal::Override)?;
        check.accepts(&path, &arguments).await?;

        let version = check.version(&path).await?;
        tracing::info!(version, program = %path.display(), "another version of Envoy is wanted");
        Ok(path)
    }

    fn current(&self) -> Option<RunningEnvoy> {
        self.running.borrow().current.clone()
    }

    /// Whether a program runs, under whatever path.
    fn runs(&self, program: &Path) -> bool {
        let file = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.current()
            .is_some_and(|envoy| file(Path::new(&envoy.program)) == file(program))
    }

    /// Shows the running Envoys in the status.
    async fn show_running(&mut self) {
        let running = self.running.borrow_and_update().clone();
        let version = match self.admin.server().await {
            Ok(server) => short_version(&server.version),
            Err(_) => None,
        };
        self.status.update(|status| {
            if let Some(current) = running.current {
                status.program = current.program;
                status.epoch = current.epoch;
            }
            status.draining = running.draining.iter().map(|envoy| envoy.epoch).collect();
            status.restarts = running.restarts;
            if let Some(version) = version {
                status.version = version;
            }
        });
    }

    /// Removes artefacts whose program does not run.
    fn remove_unused(&self) {
        let running = self.running.borrow().clone();
        let programs: Vec<_> = running.current.iter().chain(&running.draining).collect();
        let programs: Vec<_> = programs
            .iter()
            .map(|envoy| Path::new(&envoy.program))
            .collect();
        Store::new(self.config.store.clone()).keep_only(&programs);
    }
}
