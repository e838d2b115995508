//! `navarch doctor`: what is wrong with this installation.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::debug_api::{Asked, DebugApi};
use super::output::{Output, print};
use navarch_agent::local_http::Answer;
use navarch_answers::doctor::Health;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// The exit code where something is wrong.
const WRONG: u8 = 3;

/// Say what is wrong with this installation, and what to type next
///
/// On one screen: input that is refused, objects that are quarantined, proxies that refuse or do not answer, what is left out of
/// what they get, what Navarch waits for.
///
/// Exit codes: 0 nothing is wrong; 1 a control plane gives no answer; 2 the command line is wrong; 3 something is wrong.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch doctor                                         every control plane of the kubeconfig's cluster
  kubectl navarch doctor --context production --revision canary
  navarch doctor --address istiod-debug.istio-system:15014 --token-file token -o json")]
pub(super) struct Doctor {
    /// How the answer is printed
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

impl Doctor {
    /// Asks every control plane, and prints what each says.
    ///
    /// # Errors
    /// When an address cannot be resolved.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let (mut text, mut all, mut code) = (String::new(), Vec::new(), 0);
        for (address, answer) in self.api.ask_each(&Asked::get("/debug/doctor".to_owned(), ANSWER))? {
            match answer.and_then(|answer| read(&answer)) {
                Ok(health) => {
                    text.push_str(&format!("{address}\n{health}"));
                    code = if health.is_wrong() && code == 0 { WRONG } else { code };
                    all.push(json!({ "address": address, "health": health }));
                }
                Err(error) => {
                    text.push_str(&format!(
                        "{address}\n  WRONG  {error:#}\n         next: kubectl get pods -n istio-system -l app=istiod\n"
                    ));
                    code = 1;
                    all.push(json!({ "address": address, "error": format!("{error:#}") }));
                }
            }
        }
        print(self.output, &text, &Value::Array(all))?;
        Ok(ExitCode::from(code))
    }
}

/// What a control plane says.
fn read(answer: &Answer) -> anyhow::Result<Health> {
    Ok(serde_json::from_slice(&answer.body)?)
}
