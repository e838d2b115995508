//! Istio's own programs, if they were built: no test requires them, and tests that compare with
//! them are skipped without.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process::Process;
use crate::wait::until;
use crate::{client, cluster, envoy, ports};

/// Why a test with istioctl is skipped.
pub const NO_ISTIOCTL: &str = "scripts/istioctl builds istioctl";

/// Timeout of a command in seconds.
const LIMIT: &str = "120";

/// Runs istioctl on a cluster; [`istioctl`] finds the program.
#[derive(Clone, Debug)]
pub struct Istioctl(PathBuf);

/// The istioctl that `scripts/istioctl` has built.
#[must_use]
pub fn istioctl() -> Option<Istioctl> {
    Some(envoy::program().with_file_name("istioctl"))
        .filter(|program| program.exists())
        .map(Istioctl)
}

impl Istioctl {
    /// A command without a home directory. It is killed on a timeout.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", LIMIT])
            .arg(&self.0)
            .args(arguments);
        command.env("HOME", "/nonexistent").stdin(Stdio::null());
        command
    }

    /// A command on a cluster, with kubectl in the path.
    ///
    /// # Errors
    /// If kubectl is missing.
    pub fn on(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Command> {
        let mut command = self.command(arguments);
        let path = format!("{}:/usr/bin:/bin", cluster::programs()?.display());
        command.env("KUBECONFIG", kubeconfig).env("PATH", path);
        Ok(command)
    }

    /// The output of a command on a cluster.
    ///
    /// # Errors
    /// If it fails, with its error output.
    pub fn run(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        printed(&self.on(kubeconfig, arguments)?.output()?)
            .with_context(|| format!("istioctl {arguments:?}"))
    }

    /// The JSON output of a command on a cluster.
    ///
    /// # Errors
    /// If it fails, or prints something else.
    pub fn json(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Value> {
        let shown = self.run(kubeconfig, &[arguments, &["--output", "json"]].concat())?;
        serde_json::from_str(&shown).with_context(|| format!("istioctl {arguments:?}: {shown}"))
    }
}

/// The output of a command.
///
/// # Errors
/// If it has failed, with all of its output.
pub fn printed(output: &Output) -> Result<String> {
    let shown = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {shown}{stderr}",
        output.status
    );
    Ok(shown.into_owned())
}

/// The rows of a printed table without its header, split into words.
#[must_use]
pub fn rows(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect()
}

/// The directory with istiod (`pilot-discovery`) and Istio's charts: `NAVARCH_ISTIOD`, or the one
/// that `scripts/istiod` has built.
#[must_use]
pub fn istiod() -> Option<PathBuf> {
    let tools = envoy::program().parent()?.with_file_name("istiod");
    let folder = std::env::var_os("NAVARCH_ISTIOD").map_or(tools, PathBuf::from);
    folder.join("pilot-discovery").exists().then_some(folder)
}

/// A chart of Istio, such as `ztunnel`, that `scripts/istio-chart` has fetched.
#[must_use]
pub fn chart(name: &str) -> Option<PathBuf> {
    let istiod = envoy::program().parent()?.with_file_name("istio-chart");
    let chart = istiod.canonicalize().ok()?.parent()?.parent()?.join(name);
    chart.join("Chart.yaml").is_file().then_some(chart)
}

/// Why a test with Istio's pilot-agent is skipped.
pub const NO_PILOT_AGENT: &str = "scripts/pilot-agent builds Istio's pilot-agent";

/// Istio's pilot-agent, with what its image has beside it.
#[derive(Clone, Debug)]
pub struct PilotAgent {
    /// The path of its executable file.
    pub program: PathBuf,
    /// The template of Envoy's bootstrap.
    pub template: PathBuf,
    /// The release of Istio, such as `1.31.0`.
    pub version: String,
}

/// The pilot-agent in the folder `NAVARCH_ISTIO_PILOT_AGENT`, or the one that `scripts/pilot-agent` has
/// built.
#[must_use]
pub fn pilot_agent() -> Option<PilotAgent> {
    let built = envoy::tools().join("istio-pilot-agent");
    let folder = std::env::var_os("NAVARCH_ISTIO_PILOT_AGENT").map_or(built, PathBuf::from);
    let version = std::fs::read_to_string(folder.join("version")).ok()?;
    let found = PilotAgent {
        program: folder.join("pilot-agent"),
        template: folder.join("envoy_bootstrap.json"),
        version: version.trim().to_owned(),
    };
    (found.program.exists() && found.template.exists()).then_some(found)
}

/// The programs of Istio's CNI.
#[derive(Clone, Debug)]
pub struct Cni {
    /// The agent of a node, which installs the plugin.
    pub agent: PathBuf,
    /// The plugin, which the container runtime calls.
    pub plugin: PathBuf,
}

/// The CNI that `scripts/istio-suite-programs` has built.
#[must_use]
pub fn cni() -> Option<Cni> {
    let suites = envoy::program().parent()?.with_file_name("istio-suites");
    let cni = Cni {
        agent: suites.join("bin/install-cni"),
        plugin: suites.join("bin/istio-cni"),
    };
    (cni.agent.exists() && cni.plugin.exists()).then_some(cni)
}

/// A running istiod, which reads its configuration from an API server. Dropping it kills it.
#[derive(Debug)]
pub struct Istiod {
    process: Process,
    /// The port of plain xDS.
    pub xds: SocketAddr,
    /// The port of xDS over TLS, if it is open.
    pub secure: Option<SocketAddr>,
    /// The port of debug pages.
    pub http: SocketAddr,
}

/// How an istiod is started.
#[derive(Clone, Copy, Debug)]
pub struct IstiodConfig<'a> {
    /// The folder of the program ([`istiod`]).
    pub folder: &'a Path,
    /// The cluster, which needs the namespace `istio-system` and Istio's CRDs.
    pub kubeconfig: &'a Path,
    /// The file of the mesh config.
    pub mesh_config: &'a Path,
    /// The file of its output.
    pub log: &'a Path,
    /// Further environment variables, as `NAME=VALUE`.
    pub variables: &'a [String],
    /// Whether it opens the port of xDS over TLS.
    pub has_tls: bool,
}

impl Istiod {
    /// Starts it, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start.
    ///
    /// # Panics
    /// If it is not ready after a minute.
    pub async fn start(config: IstiodConfig<'_>) -> Result<Self> {
        let IstiodConfig {
            folder,
            kubeconfig,
            mesh_config,
            log,
            variables,
            has_tls,
        } = config;
        let free =
            || -> Result<SocketAddr> { Ok(SocketAddr::from(([127, 0, 0, 1], ports::free()?))) };
        let xds = free()?;
        let secure = has_tls.then(free).transpose()?;
        let secure_text = secure.map(|address| address.to_string());
        let http = free()?;
        let mut args = variables.to_vec();
        args.extend([
            "POD_NAMESPACE=istio-system".to_owned(),
            "POD_NAME=istiod-1".to_owned(),
            folder.join("pilot-discovery").display().to_string(),
            "discovery".to_owned(),
        ]);
        args.extend([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--meshConfig={}", mesh_config.display()),
            format!("--grpcAddr={xds}"),
            format!("--httpAddr={http}"),
            format!("--monitoringAddr={}", free()?),
            format!("--secureGRPCAddr={}", secure_text.unwrap_or_default()),
            "--httpsAddr=".to_owned(),
            "--ctrlz_port=0".to_owned(),
        ]);

        let process = Process::start("istiod", Path::new("/usr/bin/env"), &args, log)?;
        until("istiod is ready", || async move {
            let ready = client::get(http, "localhost", "/ready", &[]).await;
            ready.is_ok_and(|reply| reply.status == 200)
        })
        .await;

        Ok(Self {
            process,
            xds,
            secure,
            http,
        })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// ztunnel: `NAVARCH_ZTUNNEL`, or `ztunnel` next to Envoy.
#[must_use]
pub fn ztunnel() -> Option<PathBuf> {
    let beside = envoy::program().with_file_name("ztunnel");
    Some(std::env::var_os("NAVARCH_ZTUNNEL").map_or(beside, PathBuf::from))
        .filter(|program| program.exists())
}
