//! `navarch proxy`: another version of Envoy in running pods.

mod fleet;
mod pods;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use navarch_agent::upgrade::wanted::Wanted;
use navarch_api::rollout::Stages;

use super::discovery::duration;
use super::kubeconfig::KubeconfigFlags;
use super::output::{Output, print};
use super::progress::Progress;
use fleet::StagedChange;
use pods::ClusterPods;

/// Interval between requests for the result of a pod.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The exit code if a pod's Envoy was not replaced.
const STOPPED_EXIT_CODE: u8 = 4;
/// The exit code if there is no pod.
const MISSING_EXIT_CODE: u8 = 5;

/// Replace Envoy in running pods by another version, stage by stage
///
/// The annotation navarch.io/proxy-binary of each pod is patched, and the agent of the pod replaces
/// its Envoy: the new one takes over the sockets of the old one, which drains. Each pod's result is
/// waited for. After the first pod that does not have it, the command asks no further pod; up to 16
/// are under way. The pods must have been started with NAVARCH_PROXY_UPGRADE=true in proxyMetadata.
///
/// The pods alone are patched, not the workload: pods that are created later have the Envoy of
/// their image.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch proxy upgrade shop --path /usr/local/bin/envoy-1.40
  navarch proxy upgrade shop/web --image ghcr.io/me/envoy@sha256:… --stages 5%,25%,100%
  navarch proxy status shop
  navarch proxy downgrade shop/web

Needed rights: the verbs list and patch for pods, get and create for pods/portforward.

Exit codes: 0 all pods have it; 1 the cluster did not respond, or rejected it; 2 the command line is wrong; 4 a pod did not
get it, and later ones were not asked; 5 there is no such pod.")]
pub(super) struct Proxy {
    /// What to do
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    flags: ProxyFlags,
}

/// Which cluster, and the form of the answer.
#[derive(Args, Debug)]
struct ProxyFlags {
    #[command(flatten)]
    kubeconfig: KubeconfigFlags,
    /// Timeout for each pod: the kubelet takes a minute or two to show the annotation to the agent
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "10m",
        value_parser = duration
    )]
    timeout: Duration,
    /// Output format
    #[arg(
        short = 'o',
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    output: Output,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Ask the pods for another version of Envoy
    Upgrade {
        /// Namespace of the pods, or NAMESPACE/NAME with the name of a workload or a pod
        #[arg(value_name = "NAMESPACE[/WORKLOAD]")]
        target: Target,
        /// Signed artefact with the program, by its digest
        #[arg(
            long,
            value_name = "REPOSITORY@sha256:DIGEST",
            conflicts_with = "path",
            required_unless_present = "path"
        )]
        image: Option<String>,
        /// Program in the proxy's image
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// Shares of the pods that are asked one after the other
        #[arg(long, value_name = "SHARES", default_value = "5%,25%,100%", value_parser = Stages::parse)]
        stages: Stages,
    },
    /// Ask the pods for the Envoy of their image again
    Downgrade {
        /// Namespace of the pods, or NAMESPACE/NAME with the name of a workload or a pod
        #[arg(value_name = "NAMESPACE[/WORKLOAD]")]
        target: Target,
        /// Shares of the pods that are asked one after the other
        #[arg(long, value_name = "SHARES", default_value = "100%", value_parser = Stages::parse)]
        stages: Stages,
    },
    /// Show the version of Envoy in each pod, and the result of the last upgrade
    Status {
        /// Namespace of the pods, or NAMESPACE/NAME with the name of a workload or a pod
        #[arg(value_name = "NAMESPACE[/WORKLOAD]")]
        target: Target,
    },
}

/// The pods of a namespace, or of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    namespace: String,
    /// The name of a workload or a pod; `None` is all.
    name: Option<String>,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (namespace, Some(name)),
            None => (text, None),
        };
        let is_name = |name: &str| !name.is_empty() && !name.contains('/');
        if !is_name(namespace) || !name.is_none_or(is_name) {
            return Err("must be NAMESPACE, or NAMESPACE/NAME".to_owned());
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.namespace)?;
        match &self.name {
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

impl Proxy {
    /// Runs the subcommand, and prints the results.
    ///
    /// # Errors
    /// If the program's name is invalid, or the cluster does not respond.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;
        runtime.block_on(self.run_async())
    }

    async fn run_async(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Command::Upgrade {
                target,
                image,
                path,
                stages,
            } => {
                let wanted = wanted(image.as_deref(), path.as_deref())?;
                self.change(target, wanted, stages.clone()).await
            }
            Command::Downgrade { target, stages } => {
                self.change(target, String::new(), stages.clone()).await
            }
            Command::Status { target } => self.status(target).await,
        }
    }

    /// Sets the annotation of the pods, stage by stage.
    async fn change(
        &self,
        target: &Target,
        wanted: String,
        stages: Stages,
    ) -> anyhow::Result<ExitCode> {
        let pods = self.pods(target).await?;
        let names = pods.names();
        if names.is_empty() {
            return self.no_pods(target);
        }

        let progress = Progress::begin("patching pods");
        let change = StagedChange {
            wanted,
            stages,
            timeout: self.flags.timeout,
            poll_interval: POLL_INTERVAL,
        };
        let result = change
            .run(&pods, &names, |text| progress.set_text(text))
            .await;
        drop(progress);

        let result = result.for_target(&target.to_string());
        print(self.flags.output, &result, &result)?;
        Ok(ExitCode::from(match result.is_stopped {
            true => STOPPED_EXIT_CODE,
            false => 0,
        }))
    }

    /// Shows the status that the agent of each pod reports.
    async fn status(&self, target: &Target) -> anyhow::Result<ExitCode> {
        let pods = self.pods(target).await?;
        let names = pods.names();
        if names.is_empty() {
            return self.no_pods(target);
        }

        let progress = Progress::begin(&format!("asking {} pods", names.len()));
        let statuses = fleet::statuses(&pods, &names).await;
        drop(progress);

        print(self.flags.output, &statuses, &statuses)?;
        Ok(ExitCode::SUCCESS)
    }

    fn no_pods(&self, target: &Target) -> anyhow::Result<ExitCode> {
        let text = format!("no running pod of {target} has a proxy\n");
        let json = serde_json::json!({"error": text.trim()});
        print(self.flags.output, &text, &json)?;
        Ok(ExitCode::from(MISSING_EXIT_CODE))
    }

    /// The pods in the cluster of the kubeconfig.
    async fn pods(&self, target: &Target) -> anyhow::Result<ClusterPods> {
        let advice = "name a kubeconfig by --kubeconfig";
        let opened = self.flags.kubeconfig.required(advice).await?;
        ClusterPods::list(opened.client, target).await
    }
}

/// The value of the annotation, as the agent accepts it.
fn wanted(image: Option<&str>, path: Option<&str>) -> anyhow::Result<String> {
    let text = match (image, path) {
        (Some(image), _) => format!("oci://{}", image.trim_start_matches("oci://")),
        (None, Some(path)) => path.to_owned(),
        (None, None) => bail!("set --image or --path"),
    };
    // The agents of all pods would refuse it.
    let parsed = Wanted::parse(&text)?;
    if parsed == Wanted::Original {
        bail!("--path is empty: the way back is `navarch proxy downgrade`");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_namespace_and_perhaps_a_name() {
        let parse = |text: &str| text.parse::<Target>();
        assert_eq!(parse("shop").unwrap().to_string(), "shop");
        let named = parse("shop/web").unwrap();
        assert_eq!(named.name.as_deref(), Some("web"));
        assert_eq!(named.to_string(), "shop/web");
        for bad in ["", "/web", "shop/", "shop/deploy/web"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_agents_accept_is_asked_for() {
        let digest = "a".repeat(64);
        let image = format!("ghcr.io/me/envoy@sha256:{digest}");
        let expected = format!("oci://{image}");
        assert_eq!(wanted(Some(&image), None).unwrap(), expected);
        assert_eq!(wanted(Some(&expected), None).unwrap(), expected);
        assert_eq!(wanted(None, Some("/bin/envoy")).unwrap(), "/bin/envoy");

        assert!(wanted(Some("ghcr.io/me/envoy:1.40"), None).is_err());
        assert!(wanted(None, Some("envoy")).is_err());
        assert!(wanted(None, Some("")).is_err());
    }
}
