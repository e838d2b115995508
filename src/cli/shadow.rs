//! `navarch shadow`: what proxies get from a running istiod, compared with what they would get from
//! Navarch.

mod connection;
mod mesh;
mod proxies;
mod round;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::builder::Resettable;
use clap::{Arg, Args};
use navarch_proto::json::Codec;
use navarch_shadow::report::Report;
use navarch_shadow::twin::Twin;
use navarch_shadow::watch::Watched;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::debug_api::DebugApi;
use super::discovery::duration;
use super::output::{Output, print, report};
use super::progress::Progress;
use connection::{Connection, XdsFlags};
use mesh::Mesh;
use round::{Comparisons, Round};

/// The exit code if there are differences that are not documented.
const DIFFERENT_EXIT_CODE: u8 = 1;
/// The exit code if not everything could be compared.
const INCOMPLETE_EXIT_CODE: u8 = 2;

/// Compare what a running istiod sends to proxies with what Navarch would send
///
/// Connects to istiod as the proxies of its debug pages (/debug/adsz), gets what each of them gets,
/// and compares it with what Navarch generates for the same proxy from the same objects: those of
/// the kubeconfig's cluster, with istiod's environment variables, or those of --config-dir.
/// Differences are grouped by cause: an object that only one of the two has applied, a difference
/// that is intended and documented, or the field. A proxy that differs is compared again after
/// --settle, so that a change on its way is no difference.
///
/// Nothing is written: no object, no lock and no status. Every response of istiod is acknowledged.
/// Proxies are asked for without what would make istiod register a workload. Secrets are compared
/// by digest, and only over TLS; without --xds-ca-file the connection is plaintext. While a proxy
/// is compared, istiod's debug pages list a second stream of it.
///
/// Load on istiod: at most --streams streams at a time (2), each of them ends when its proxy has
/// been answered, with --pause (200ms) before the next, and at most --sample proxies (100) a round.
///
/// Exit codes: 0 no difference, or only documented ones; 1 other differences, in any round with
/// --watch; 2 the command line is wrong, or a proxy could not be compared.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl port-forward -n istio-system deploy/istiod 15010 &
  navarch shadow                                      100 proxies of the kubeconfig's cluster
  navarch shadow --sample 0 --streams 1 --pause 1s    all proxies, slowly
  navarch shadow --proxy web-1.shop -o json           one proxy
  navarch shadow --watch --for 24h                    a day, with a report at each change
  navarch shadow --address localhost:15014 --config-dir mesh/   objects of files
  navarch shadow --address localhost:15014 --kubeconfig FILE    istiod by its address")]
#[command(mut_arg("addresses", beside_a_cluster))]
pub(super) struct Shadow {
    #[command(flatten)]
    xds: XdsFlags,
    /// Directory with the objects of the mesh, as for `navarch discovery`, instead of a cluster
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// File with the mesh config for the directory: key mesh of the ConfigMap istio
    #[arg(
        long = "meshConfigFile",
        alias = "mesh-config-file",
        value_name = "FILE",
        requires = "config_dir"
    )]
    mesh_config: Option<PathBuf>,
    /// Environment variable of istiod, as NAME=VALUE; can be repeated. Those of its pod are read
    /// from the cluster
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
    /// Domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    domain: String,
    /// Proxy to compare, as POD.NAMESPACE; can be repeated; a sample of all if unset
    #[arg(long = "proxy", value_name = "PROXY")]
    proxies: Vec<String>,
    /// Maximum number of proxies in a round, evenly distributed; others in the next round; 0 for
    /// all
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    sample: usize,
    /// Maximum number of streams to istiod at a time
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 2,
        value_parser = clap::value_parser!(u8).range(1..=20)
    )]
    streams: u8,
    /// Pause of each stream before the next proxy
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = duration)]
    pause: Duration,
    /// Time after which a proxy that differs is compared again
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    settle: Duration,
    /// Repeat, and report a difference when it appears, and when no proxy has it any more
    #[arg(long)]
    watch: bool,
    /// Time between rounds of --watch
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    interval: Duration,
    /// End of --watch; if unset, it ends by Ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, requires = "watch")]
    limit: Option<Duration>,
    /// Timeout of all responses of istiod for a proxy, and of reading the cluster
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Output format
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

/// Lets `--address` be set together with flags about the cluster: the address is that of istiod, the
/// cluster that of the objects.
fn beside_a_cluster(addresses: Arg) -> Arg {
    addresses.conflicts_with(Resettable::Reset)
}

/// Parses `NAME=VALUE`.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| "is not NAME=VALUE".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The result of one round.
struct RoundResult {
    report: Report,
    /// The names of the proxies that istiod listed.
    connected: BTreeSet<String>,
}

/// What several rounds have in common.
struct Session {
    runtime: Runtime,
    mesh: Mesh,
    connection: Connection,
    codec: Codec,
    /// Cancelled by Ctrl-C, with --watch.
    stop: CancellationToken,
}

impl Shadow {
    /// Compares, and prints the report.
    ///
    /// # Errors
    /// Never: a failure is printed, and has its own exit code.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let code = self.compare().unwrap_or_else(|error| {
            report(&format!("Error: {error:?}"));
            INCOMPLETE_EXIT_CODE
        });
        Ok(ExitCode::from(code))
    }

    /// Runs all rounds, prints their reports and returns the exit code.
    fn compare(&self) -> anyhow::Result<u8> {
        let session = self.open()?;
        let begin = Instant::now();
        let mut watched = Watched::default();
        let mut is_first = true;
        let mut code = 0;

        for number in 0.. {
            match self.round(&session, number) {
                Ok(Some(found)) => {
                    let RoundResult { report, connected } = found;
                    code = worse(code, exit_code(&report));
                    let changes = watched.add(&report, &connected);
                    if is_first {
                        print(self.output, &report, &report)?;
                        is_first = false;
                    } else if !changes.is_empty() {
                        print(self.output, &changes, &changes)?;
                    }
                }
                Ok(None) => break,
                // istiod may be restarting: only what never worked ends --watch.
                Err(error) if number > 0 => {
                    report(&format!("Warning: {error:#}"));
                    code = worse(code, INCOMPLETE_EXIT_CODE);
                }
                Err(error) => return Err(error),
            }

            let is_over = self
                .limit
                .is_some_and(|limit| begin.elapsed() + self.interval > limit);
            if !self.watch || is_over || session.is_stopped_within(self.interval) {
                break;
            }
        }

        Ok(code)
    }

    /// Opens everything that rounds need.
    fn open(&self) -> anyhow::Result<Session> {
        // Two threads: the cluster is watched while debug pages are requested.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;
        let flags = self.api.cluster_flags();
        let connection = self.xds.open(flags.istio_namespace(), self.timeout)?;

        let variables = self.variables.iter().cloned().collect();
        let mesh = match &self.config_dir {
            Some(directory) => Mesh::of_directory(directory, self.mesh_config.as_ref(), variables),
            None => {
                let _progress = Progress::begin("reading the objects of the cluster");
                runtime.block_on(Mesh::of_cluster(
                    flags,
                    variables,
                    &self.domain,
                    self.timeout,
                ))?
            }
        };

        let stop = CancellationToken::new();
        if self.watch {
            // Without --watch, Ctrl-C ends the process.
            let stop = stop.clone();
            runtime.spawn(async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    stop.cancel();
                }
            });
        }

        Ok(Session {
            runtime,
            mesh,
            connection,
            codec: Codec::new(),
            stop,
        })
    }

    /// One round: the proxies of now, those that differ twice. `None` if the user ends the command.
    fn round(&self, session: &Session, number: usize) -> anyhow::Result<Option<RoundResult>> {
        let twins = proxies::twins(&self.api, &self.domain, self.timeout)?;
        let connected = twins.twins.keys().cloned().collect();
        let skipped = twins.skipped;
        let chosen = if self.proxies.is_empty() {
            proxies::sample(twins.twins, self.sample, number)
        } else {
            proxies::named(twins.twins, &self.proxies)?
        };
        ensure!(
            !chosen.is_empty(),
            "istiod has no connected proxy: name the replica that has some by --address, or see \
             `istioctl proxy-status`"
        );

        let round = Round {
            connection: &session.connection,
            codec: &session.codec,
            streams: usize::from(self.streams),
            pause: self.pause,
        };
        let progress = Progress::begin(&format!("comparing {} proxies", chosen.len()));
        let Some(mut compared) = session.compare(&round, chosen)? else {
            return Ok(None);
        };

        let unsettled = compared.take_unsettled();
        if !unsettled.is_empty() {
            progress.set_text(format!("comparing {} proxies again", unsettled.len()));
            if session.is_stopped_within(self.settle) {
                return Ok(None);
            }
            let Some(again) = session.compare(&round, unsettled)? else {
                return Ok(None);
            };
            compared.extend(again);
        }

        Ok(Some(RoundResult {
            report: compared.report(skipped),
            connected,
        }))
    }
}

impl Session {
    /// Compares proxies on the current snapshot; `None` if the user ends the command.
    fn compare(&self, round: &Round<'_>, twins: Vec<Twin>) -> anyhow::Result<Option<Comparisons>> {
        let comparing = round.compare(self.mesh.context()?, twins);
        self.runtime.block_on(async {
            tokio::select! {
                compared = comparing => compared.map(Some),
                () = self.stop.cancelled() => Ok(None),
            }
        })
    }

    /// Waits. Returns whether the user ends the command meanwhile.
    fn is_stopped_within(&self, time: Duration) -> bool {
        self.runtime.block_on(async {
            tokio::select! {
                () = self.stop.cancelled() => true,
                () = tokio::time::sleep(time) => false,
            }
        })
    }
}

/// The exit code of one report.
fn exit_code(found: &Report) -> u8 {
    if found.is_unexplained() {
        DIFFERENT_EXIT_CODE
    } else if found.failed.is_empty() {
        0
    } else {
        INCOMPLETE_EXIT_CODE
    }
}

/// The worse of two exit codes: a difference is worse than a proxy that could not be compared.
fn worse(one: u8, other: u8) -> u8 {
    match (one, other) {
        (DIFFERENT_EXIT_CODE, _) | (_, DIFFERENT_EXIT_CODE) => DIFFERENT_EXIT_CODE,
        (one, other) => one.max(other),
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn a_difference_in_any_round_is_the_result() {
        assert_eq!(worse(0, 0), 0);
        assert_eq!(worse(INCOMPLETE_EXIT_CODE, 0), INCOMPLETE_EXIT_CODE);
        assert_eq!(
            worse(DIFFERENT_EXIT_CODE, INCOMPLETE_EXIT_CODE),
            DIFFERENT_EXIT_CODE
        );
        assert_eq!(worse(0, DIFFERENT_EXIT_CODE), DIFFERENT_EXIT_CODE);
    }

    #[test]
    fn an_address_names_istiod_and_a_kubeconfig_the_cluster() {
        let flags = [
            "--address=localhost:15014",
            "--kubeconfig=f",
            "--revision=canary",
        ];
        let command = Shadow::augment_args(clap::Command::new("shadow"));
        let parsed = command.try_get_matches_from(["shadow"].into_iter().chain(flags));
        let shadow = Shadow::from_arg_matches(&parsed.unwrap()).unwrap();
        assert_eq!(shadow.api.cluster_flags().revision(), Some("canary"));

        // Elsewhere one of the two would have no effect.
        let command = DebugApi::augment_args(clap::Command::new("other"));
        let parsed = command.try_get_matches_from(["other"].into_iter().chain(flags));
        assert!(parsed.is_err());
    }

    #[test]
    fn a_variable_has_a_name_and_a_value() {
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert!(variable("A").is_err());
    }
}
