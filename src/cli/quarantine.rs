//! `navarch quarantine`: objects whose previous version is served because proxies reject them.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::debug_api::{DebugApi, DebugRequest};
use super::object_arguments::ObjectArguments;
use super::output::{Output, print};
use navarch_answers::quarantine::QuarantinedObjects;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Exit codes in addition to those of all commands.
const QUARANTINED_EXIT_CODE: u8 = 4;
const MISSING_EXIT_CODE: u8 = 5;

/// Show quarantined objects, whose previous version is served because proxies reject them; end a
/// quarantine
///
/// A quarantine ends with the next edit of its object. A released object has no other quarantine
/// until then, even if proxies reject it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch quarantine list
  navarch quarantine release virtualservice reviews -n shop

A quarantine can only be ended from the control plane's own machine, or through port-forward:
  kubectl port-forward -n istio-system deploy/istiod 15014

Exit codes: 0 done, or no object is quarantined; 1 the control plane did not respond, or rejected it; 2 the command line is
wrong; 4 objects are quarantined; 5 the object to release is not.")]
pub(super) struct Quarantine {
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
    /// Show the quarantined objects, and who rejects them
    List,
    /// Let proxies have the rejected version of an object again
    Release {
        #[command(flatten)]
        object: ObjectArguments,
    },
}

impl Quarantine {
    /// Sends the request, and prints the response.
    ///
    /// # Errors
    /// If the kind is unknown, or the control plane does not respond or rejects the command.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Command::List => self.list(),
            Command::Release { object } => self.release(&object.path()?),
        }
    }

    /// Prints the quarantined objects.
    fn list(&self) -> anyhow::Result<ExitCode> {
        let request = DebugRequest::get("/debug/quarantine".to_owned(), REQUEST_TIMEOUT);
        let answer = self.api.query(&request)?;
        if answer.status.as_u16() == 404 {
            bail!(
                "the control plane has no quarantine page: it is not Navarch, or an older version"
            );
        }

        let all: QuarantinedObjects =
            serde_json::from_slice(&answer.body).context("invalid response of the debug API")?;
        print(self.output, &all, &all)?;
        Ok(ExitCode::from(match all.quarantined.is_empty() {
            true => 0,
            false => QUARANTINED_EXIT_CODE,
        }))
    }

    /// Ends a quarantine.
    fn release(&self, object: &str) -> anyhow::Result<ExitCode> {
        let request = DebugRequest {
            method: Method::POST,
            path: "/debug/quarantine".to_owned(),
            body: json!({ "release": object }).to_string().into_bytes(),
            timeout: REQUEST_TIMEOUT,
        };
        let answer = self.api.query(&request)?;
        if answer.status.as_u16() == 404 {
            let text = answer.text().into_owned();
            print(self.output, &text, &json!({ "error": text.trim() }))?;
            return Ok(ExitCode::from(MISSING_EXIT_CODE));
        }

        let text = format!("{object} is in force again until it is edited\n");
        print(self.output, &text, &json!({ "released": object }))?;
        Ok(ExitCode::SUCCESS)
    }
}
