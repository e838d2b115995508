//! `navarch doctor`: finds problems of this installation.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::debug_api::{Among, DebugApi, DebugRequest, ReplicaResponse};
use super::output::{Output, print};
use super::progress::Progress;
use navarch_agent::local_http::LocalResponse;
use navarch_answers::doctor::{
    Check, Finding, Health, Level, MAX_DIFFERENT_SECONDS, clock, compare, same_configuration,
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval after which replicas with different configuration are requested again: one may have
/// read an edit just before the other.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The exit code if there are problems.
const PROBLEMS_EXIT_CODE: u8 = 3;

/// Find problems of this installation, with a next step for each
///
/// Shows problems with kinds, rights, webhooks, certificates and clocks, replicas and proxies that
/// differ, rejected objects, quarantined objects, proxies that reject or do not acknowledge
/// responses, configuration that is not sent to proxies, limits that were reached, and what Navarch
/// waits for. Each line has a next step and a link to its explanation.
///
/// This includes control planes that run but are not ready.
///
/// Exit codes: 0 nothing is wrong; 1 a control plane did not respond; 2 the command line is wrong;
/// 3 something is wrong.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch doctor                                         every control plane of the kubeconfig's cluster
  kubectl navarch doctor --context production --revision canary
  navarch doctor --address istiod-debug.istio-system:15014 --token-file token -o json")]
pub(super) struct Doctor {
    /// Output format
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

/// The responses of control planes, by address.
struct DoctorResponses {
    /// The reports.
    well: Vec<(String, Health)>,
    /// The errors of failed requests.
    silent: Vec<(String, String)>,
}

impl Doctor {
    /// Sends a request to every control plane, and prints the reports.
    ///
    /// # Errors
    /// If an address cannot be resolved.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let progress = Progress::begin("querying the control planes");
        let mut answers = self.fetch()?;

        for _ in 0..MAX_DIFFERENT_SECONDS {
            if same_configuration(&answers.well) {
                break;
            }
            progress.set_text(
                "the configuration of replicas differs; waiting until it is the same".to_owned(),
            );
            std::thread::sleep(POLL_INTERVAL);
            answers = self.fetch()?;
        }

        drop(progress);
        let DoctorResponses { mut well, silent } = answers;
        compare(&mut well);
        let mut text = String::new();
        let mut all = Vec::new();
        let mut code = if well.iter().any(|(_, health)| health.is_wrong()) {
            PROBLEMS_EXIT_CODE
        } else {
            0
        };

        for (address, health) in &well {
            text.push_str(&format!("{address}\n{health}"));
            all.push(json!({ "address": address, "health": health }));
        }

        for (address, error) in &silent {
            let next = "kubectl get pods -n istio-system -l app=istiod";
            text.push_str(&format!(
                "{address}\n{}",
                Finding::of(Check::Answer, Level::Wrong, error.clone(), next)
            ));
            all.push(json!({ "address": address, "error": error }));
            code = 1;
        }

        print(self.output, &text, &Value::Array(all))?;
        Ok(ExitCode::from(code))
    }

    /// The reports of all control planes, and the errors of failed requests.
    fn fetch(&self) -> anyhow::Result<DoctorResponses> {
        let request = DebugRequest::get("/debug/doctor?whole=true".to_owned(), REQUEST_TIMEOUT);
        let mut well = Vec::new();
        let mut silent = Vec::new();

        for ReplicaResponse {
            place,
            answer,
            window,
            ..
        } in self.api.query_all(&request, Among::Running)?
        {
            match answer.and_then(|answer| read(&answer)) {
                Ok(mut health) => {
                    // Older releases do not send their time.
                    if let Ok(timestamp) = health.now.parse::<Timestamp>() {
                        let whose = [place.as_str(), "this machine's"];
                        clock(
                            &mut health,
                            timestamp,
                            window,
                            whose,
                            "timedatectl status, on this machine and its node",
                        );
                    }
                    well.push((place, health));
                }
                Err(error) => silent.push((place, format!("{error:#}"))),
            }
        }

        Ok(DoctorResponses { well, silent })
    }
}

/// Parses the report of a control plane.
fn read(answer: &LocalResponse) -> anyhow::Result<Health> {
    Ok(serde_json::from_slice(&answer.body)?)
}
