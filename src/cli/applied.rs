//! `navarch applied`: shows which proxies have acknowledged an object.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::debug_api::{DebugApi, DebugRequest};
use super::output::{Output, print};
use super::progress::Progress;
use navarch_agent::local_http::LocalResponse;
use navarch_answers::applied::{Applied, AppliedEverywhere, AppliedState, Replica};
use navarch_answers::proposal::{kind_of, object_ref};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between requests.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Show which proxies have acknowledged an object
///
/// Of the affected proxies: how many have acknowledged the last change, which have not and since
/// when, and which rejected it, with Envoy's error.
///
/// The request is sent to every ready control plane of the kubeconfig's cluster, or to each
/// --address: repeat it, or use a headless Service that resolves to all replicas.
///
/// Exit codes: 0 every proxy has acknowledged it; 1 a control plane did not respond; 2 the command
/// line is wrong; 3 it is pending (after --timeout with --wait); 4 a proxy rejected it, or it is
/// quarantined; 5 the object does not exist.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch applied virtualservice reviews -n shop
  navarch applied vs reviews -n shop --wait --timeout 1m --context production && echo everywhere
  navarch applied vs reviews -n shop --generation $(kubectl get vs reviews -n shop -o jsonpath={.metadata.generation}) --wait")]
pub(super) struct AppliedCommand {
    /// Kind of the object, as in kubectl
    kind: String,
    /// Name of the object
    name: String,
    /// Namespace of the object
    #[arg(short = 'n', long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    /// Wait until every proxy has acknowledged it, or one rejects it
    #[arg(long)]
    wait: bool,
    /// Timeout of --wait
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = super::discovery::duration, requires = "wait")]
    timeout: Duration,
    /// Expected generation: the object is pending until control planes have read it
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    generation: i64,
    /// Output format
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

impl AppliedCommand {
    /// Requests the status, and waits if requested.
    ///
    /// # Errors
    /// If the kind is unknown, or an address cannot be resolved.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command line waits by the real clock"
    )]
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let kind = kind_of(&self.kind).map_err(anyhow::Error::msg)?;
        let path = match kind.is_cluster_scoped() {
            true => format!("{}/{}", kind.as_str(), self.name),
            false => format!("{}/{}/{}", kind.as_str(), self.namespace, self.name),
        };
        let object = object_ref(&path).map_err(anyhow::Error::msg)?.to_string();
        let request = DebugRequest::get(format!("/debug/applied?object={path}"), REQUEST_TIMEOUT);
        let end = Instant::now() + self.timeout;

        let progress = Progress::begin(&format!(
            "querying which proxies have acknowledged {object}"
        ));

        loop {
            let replicas = self
                .api
                .query_each(&request)?
                .into_iter()
                .map(|(address, answer)| replica(address, answer));
            let all = AppliedEverywhere {
                object: object.clone(),
                replicas: replicas.collect(),
            };
            let standing = all.state(self.generation);
            let is_final = matches!(standing, AppliedState::Taken | AppliedState::Rejected);

            if !self.wait || is_final || Instant::now() >= end {
                drop(progress);
                print(self.output, &all, &all)?;
                return Ok(ExitCode::from(code(standing)));
            }

            progress.set_text(
                all.to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );

            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The status of one control plane.
fn replica(address: String, answer: anyhow::Result<LocalResponse>) -> Replica {
    let read = |answer: LocalResponse| match answer.status.as_u16() {
        404 => Ok(None),
        _ => serde_json::from_slice::<Applied>(&answer.body)
            .map(Some)
            .map_err(anyhow::Error::from),
    };

    match answer.and_then(read) {
        Ok(applied) => Replica {
            address,
            applied,
            error: None,
        },
        Err(error) => Replica {
            address,
            applied: None,
            error: Some(format!("{error:#}")),
        },
    }
}

/// The exit code of a status.
fn code(standing: AppliedState) -> u8 {
    match standing {
        AppliedState::Taken => 0,
        AppliedState::Unknown => 1,
        AppliedState::Pending => 3,
        AppliedState::Rejected => 4,
        AppliedState::Missing => 5,
    }
}
