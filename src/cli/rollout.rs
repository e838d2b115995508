//! `navarch rollout`: staged rollouts of changes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::debug_api::{DebugApi, DebugRequest};
use super::object_arguments::{ObjectArguments, object_path};
use super::output::{Output, print};
use super::progress::Progress;
use navarch_agent::local_http::LocalResponse;
use navarch_answers::rollout::{RolloutState, Rollouts};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between requests.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Exit codes in addition to those of all commands.
const UNDER_WAY_EXIT_CODE: u8 = 3;
const STOPPED_EXIT_CODE: u8 = 4;
const MISSING_EXIT_CODE: u8 = 5;

/// Show rollouts, which are changes that proxies receive in stages; pause, promote or abort them
///
/// The annotation navarch.io/rollout of an object sets the stages, such as 5%,25%,100%. Each edit
/// is first sent to that share of the proxies, and to more once all of these have acknowledged it
/// and a pause is over; the rollout stops when a proxy rejects it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch rollout status
  navarch rollout status vs reviews -n shop --wait --timeout 10m && echo everywhere
  navarch rollout pause virtualservice reviews -n shop
  navarch rollout promote virtualservice reviews -n shop
  navarch rollout abort virtualservice reviews -n shop

Rollouts can only be paused, promoted or aborted from the control plane's own machine, or through port-forward:
  kubectl port-forward -n istio-system deploy/istiod 15014

Exit codes: 0 done, or no rollout is in progress; 1 the control plane did not respond, or rejected it; 2 the command line is
wrong; 3 a rollout is in progress; 4 one was stopped; 5 there is none to pause, promote or abort.")]
pub(super) struct Rollout {
    /// What to do
    #[command(subcommand)]
    command: Command,
    /// Output format
    #[arg(
        short = 'o',
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show the state of rollouts: that of one object, or all
    Status {
        #[command(flatten)]
        object: AnyObject,
        /// Wait until no rollout is in progress, or one is stopped
        #[arg(long)]
        wait: bool,
        /// Timeout of --wait
        #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = super::discovery::duration, requires = "wait")]
        timeout: Duration,
    },
    /// Pause the rollout of an object at its stage until it is promoted
    Pause {
        #[command(flatten)]
        object: ObjectArguments,
    },
    /// Advance the rollout of an object to the next stage now, even if it waits for something
    Promote {
        #[command(flatten)]
        object: ObjectArguments,
        /// To all proxies at once
        #[arg(long)]
        full: bool,
    },
    /// Return all proxies to the previous version until the object is edited
    Abort {
        #[command(flatten)]
        object: ObjectArguments,
    },
}

/// An object, or none.
#[derive(Args, Debug)]
struct AnyObject {
    /// Kind of the object, as in kubectl
    #[arg(requires = "name")]
    kind: Option<String>,
    /// Name of the object
    name: Option<String>,
    /// Namespace of the object
    #[arg(short = 'n', long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
}

impl Rollout {
    /// Sends the request, and prints the response.
    ///
    /// # Errors
    /// If the kind is unknown, or the control plane does not respond or rejects the command.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (object, command) = match &self.command {
            Command::Status {
                object,
                wait,
                timeout,
            } => {
                let object = match (&object.kind, &object.name) {
                    (Some(kind), Some(name)) => Some(object_path(kind, &object.namespace, name)?),
                    _ => None,
                };
                return self.status(object.as_deref(), wait.then_some(*timeout));
            }
            Command::Pause { object } => (object, "pause"),
            Command::Promote {
                object,
                full: false,
            } => (object, "promote"),
            Command::Promote { object, full: true } => (object, "promote-full"),
            Command::Abort { object } => (object, "abort"),
        };

        let object = object.path()?;
        let body = json!({ "object": object, "order": command })
            .to_string()
            .into_bytes();
        let request = DebugRequest {
            method: Method::POST,
            path: "/debug/rollout".to_owned(),
            body,
            timeout: REQUEST_TIMEOUT,
        };

        let answer = self.api.query(&request)?;
        if answer.status.as_u16() == 404 {
            let text = answer.text().into_owned();
            print(self.output, &text, &json!({ "error": text.trim() }))?;
            return Ok(ExitCode::from(MISSING_EXIT_CODE));
        }

        let standing = self.fetch_rollouts(Some(&object))?;
        print(self.output, &standing, &standing)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the status of rollouts, once or until none is in progress.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command line waits by the real clock"
    )]
    fn status(&self, object: Option<&str>, wait: Option<Duration>) -> anyhow::Result<ExitCode> {
        let end = wait.map(|timeout| Instant::now() + timeout);
        let progress = Progress::begin("querying rollouts");

        loop {
            let standing = self.fetch_rollouts(object)?;
            let is = |states: &[RolloutState]| {
                standing
                    .rollouts
                    .iter()
                    .any(|rollout| states.contains(&rollout.state))
            };

            let is_stopped = is(&[RolloutState::Stopped]);
            let is_under_way = is(&[
                RolloutState::Waiting,
                RolloutState::Rolling,
                RolloutState::Paused,
            ]);

            if is_stopped || !is_under_way || end.is_none_or(|end| Instant::now() >= end) {
                drop(progress);
                print(self.output, &standing, &standing)?;
                return Ok(ExitCode::from(match (is_stopped, is_under_way) {
                    (true, _) => STOPPED_EXIT_CODE,
                    (false, true) => UNDER_WAY_EXIT_CODE,
                    (false, false) => 0,
                }));
            }

            progress.set_text(
                standing
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );

            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Requests the status of rollouts.
    fn fetch_rollouts(&self, object: Option<&str>) -> anyhow::Result<Rollouts> {
        let path = match object {
            Some(object) => format!("/debug/rollout?object={object}"),
            None => "/debug/rollout".to_owned(),
        };
        read(&self.api.query(&DebugRequest::get(path, REQUEST_TIMEOUT))?)
    }
}

/// Parses the response of the control plane.
fn read(answer: &LocalResponse) -> anyhow::Result<Rollouts> {
    if answer.status.as_u16() == 404 {
        bail!("the control plane has no rollout page: it is not Navarch, or an older version");
    }
    serde_json::from_slice(&answer.body).context("invalid response of the debug API")
}
