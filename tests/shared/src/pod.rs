//! A directory in place of a pod's file system, with a running agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use navarch::agent::local_http::LocalRequest;
use navarch_testkit::istio::PilotAgent;
use navarch_testkit::usage::usage;
use navarch_testkit::{envoy, ports};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::program;
use crate::server::Server;

/// How long Envoy may take to become ready on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The file with the template of Envoy's bootstrap in Istio's proxy image.
const TEMPLATE: &str = "var/lib/istio/envoy/envoy_bootstrap_tmpl.json";

/// A folder of a pod with Istio's agent for `OUTPUT_CERTS`, which must exist.
pub const OUTPUT: &str = "out";

/// How an agent is started.
struct Launch<'a> {
    /// Another agent than this project's.
    program: Option<&'a Path>,
    kind: &'a str,
    labels: &'a [(&'a str, &'a str)],
    variables: &'a [(&'a str, &'a str)],
    /// Further fields of ProxyConfig.
    settings: Value,
    flags: &'a [&'a str],
}

impl Default for Launch<'_> {
    fn default() -> Self {
        Self {
            program: None,
            kind: "sidecar",
            labels: &[("app", "web")],
            variables: &[],
            settings: json!({}),
            flags: &[],
        }
    }
}

impl Launch<'_> {
    /// The command of the agent, without its arguments.
    fn command(&self) -> Command {
        if let Some(program) = self.program {
            return Command::new(program);
        }

        // `NAVARCH_BIN` is another build whose cost is measured.
        let own = std::env::var_os("NAVARCH_BIN").unwrap_or_else(|| program().into());
        let mut command = Command::new(own);
        command.arg("agent");
        command
    }
}

/// An agent with its ports.
pub struct Pod {
    agent: Child,
    /// Its working directory.
    folder: TempDir,
    /// The agent's status port.
    pub status: u16,
    /// Envoy's admin port.
    pub admin: u16,
    /// Envoy's readiness port.
    pub envoy_status: u16,
}

impl Pod {
    /// Starts an agent as service account `web` of namespace `shop`.
    pub fn start(server: &Server, variables: &[(&str, &str)]) -> Result<Self> {
        Self::start_labelled(server, "web", variables)
    }

    /// The same with another label `app`.
    pub fn start_labelled(server: &Server, app: &str, variables: &[(&str, &str)]) -> Result<Self> {
        Self::start_as(server, "sidecar", &[("app", app)], variables)
    }

    /// The same as another kind of proxy, with more labels.
    pub fn start_as(
        server: &Server,
        kind: &str,
        labels: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start_with_config(server, kind, labels, variables, &json!({}))
    }

    /// The same with further fields of ProxyConfig.
    pub fn start_with_config(
        server: &Server,
        kind: &str,
        labels: &[(&str, &str)],
        variables: &[(&str, &str)],
        settings: &Value,
    ) -> Result<Self> {
        Self::start_with_flags(server, kind, labels, variables, settings, &[])
    }

    /// The same with further flags.
    pub fn start_with_flags(
        server: &Server,
        kind: &str,
        labels: &[(&str, &str)],
        variables: &[(&str, &str)],
        settings: &Value,
        flags: &[&str],
    ) -> Result<Self> {
        let launch = Launch {
            kind,
            labels,
            variables,
            settings: settings.clone(),
            flags,
            ..Launch::default()
        };
        Self::start_in(folder_with_token(server)?, server, launch)
    }

    /// Starts an agent as service account `web` of namespace `shop` with a further file.
    pub fn start_with_file(server: &Server, path: &str, text: &str) -> Result<Self> {
        let folder = folder_with_token(server)?;
        fs::write(folder.path().join(path), text)?;
        Self::start_in(folder, server, Launch::default())
    }

    /// Starts an agent as service account `web` of namespace `shop` on a machine without a file
    /// with a token.
    pub fn start_without_token(server: &Server, variables: &[(&str, &str)]) -> Result<Self> {
        let launch = Launch {
            variables,
            ..Launch::default()
        };
        Self::start_in(tempfile::tempdir()?, server, launch)
    }

    /// Starts Istio's pilot-agent as service account `web` of namespace `shop`, with the files and
    /// the environment of Istio's proxy image.
    pub fn start_istio(
        server: &Server,
        istio: &PilotAgent,
        kind: &str,
        app: &str,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = folder_with_token(server)?;
        let template = folder.path().join(TEMPLATE);
        fs::create_dir_all(template.parent().unwrap())?;
        fs::copy(&istio.template, template)?;
        fs::create_dir(folder.path().join(OUTPUT))?;

        // It would look for the metadata servers of clouds.
        let of_image = [
            ("ISTIO_META_ISTIO_VERSION", istio.version.as_str()),
            ("CLOUD_PLATFORM", "none"),
        ];
        let launch = Launch {
            program: Some(&istio.program),
            kind,
            labels: &[("app", app)],
            variables: &[&of_image[..], variables].concat(),
            ..Launch::default()
        };
        Self::start_in(folder, server, launch)
    }

    /// Starts an agent in a directory.
    fn start_in(folder: TempDir, server: &Server, launch: Launch<'_>) -> Result<Self> {
        let file = |path: &str, text: &str| -> Result<()> {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap())?;
            Ok(fs::write(path, text)?)
        };
        file("var/run/secrets/istio/root-cert.pem", &server.root())?;

        let labels: String = launch
            .labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{value}\"\n"))
            .collect();
        file("etc/istio/pod/labels", &labels)?;
        let status = ports::free()?;
        let admin = ports::free()?;
        let envoy_status = ports::free()?;

        let mut config = json!({
            "discoveryAddress": server.secure.to_string(), "binaryPath": envoy::program(), "statusPort": status,
            "proxyAdminPort": admin, "terminationDrainDuration": "1s", "concurrency": 1,
        });
        let members = launch.settings.as_object().into_iter().flatten();
        members.for_each(|(name, value)| config[name] = value.clone());
        let log = fs::File::create(folder.path().join("log"))?;

        let agent = launch
            .command()
            .args(["proxy", launch.kind, "--proxyLogLevel=info"])
            .args(launch.flags)
            .current_dir(folder.path())
            .env("PROXY_CONFIG", config.to_string())
            .env("POD_NAME", "web-1")
            .env("POD_NAMESPACE", "shop")
            .env("SERVICE_ACCOUNT", "web")
            .env("INSTANCE_IP", "127.0.0.1")
            .env("ISTIOD_SAN", "istiod.istio-system.svc")
            .env("ISTIO_META_CLUSTER_ID", "Kubernetes")
            .env("ISTIO_META_INTERCEPTION_MODE", "NONE")
            .env("DNS_PROXY_ADDR", format!("127.0.0.1:{}", ports::free()?))
            .env("ENVOY_STATUS_PORT", envoy_status.to_string())
            .env("ENVOY_PROMETHEUS_PORT", ports::free()?.to_string())
            .envs(launch.variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;

        Ok(Self {
            agent,
            folder,
            status,
            admin,
            envoy_status,
        })
    }

    /// Waits until the agent is ready.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        while self
            .get(self.status, "/healthz/ready")
            .await
            .ok()
            .map(|answer| answer.0)
            != Some(200)
        {
            if let Some(status) = self.agent.try_wait()? {
                bail!("the agent ended with {status}:\n{}", self.log());
            }
            ensure!(Instant::now() < end, "not ready:\n{}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until an epoch of Envoy is LIVE.
    pub async fn until_live(&self, epoch: u64) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Ok((_, text)) = self.get(self.admin, "/server_info").await
                && let Ok(info) = serde_json::from_str::<Value>(&text)
                && info["state"] == "LIVE"
                && info["command_line_options"]["restart_epoch"]
                    .as_u64()
                    .unwrap_or(0)
                    == epoch
            {
                return Ok(());
            }
            ensure!(Instant::now() < end, "no epoch {epoch}:\n{}", self.log());
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The path of a file in the pod.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The content of a file in the pod; empty without the file.
    pub fn file(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Removes a file.
    pub fn remove(&self, path: &str) -> Result<()> {
        Ok(fs::remove_file(self.path(path))?)
    }

    /// Replaces a file, as the kubelet does when a mounted object changes.
    pub fn replace(&self, path: &str, text: &str) -> Result<()> {
        let path = self.path(path);
        let new = path.with_extension("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, path)?)
    }

    /// The logs of agent and Envoy.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Status and body of a page.
    pub async fn get(&self, port: u16, path: &str) -> Result<(u16, String)> {
        let answer = LocalRequest::get("127.0.0.1", port, path, Duration::from_secs(5))
            .send()
            .await?;
        Ok((
            answer.status.as_u16(),
            String::from_utf8_lossy(&answer.body).into_owned(),
        ))
    }

    /// Sends a POST request.
    pub async fn post(&self, port: u16, path: &str) -> Result<()> {
        let answer = LocalRequest::post("127.0.0.1", port, path, Duration::from_secs(5))
            .send()
            .await?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        Ok(())
    }

    /// The process ids of the pod's Envoys.
    fn envoys(&self) -> Vec<u32> {
        let folder = fs::canonicalize(self.folder.path()).unwrap();
        let entries = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let link = |pid: u32, name: &str| {
            fs::read_link(Path::new("/proc").join(pid.to_string()).join(name)).ok()
        };
        let Ok(envoy) = fs::canonicalize(envoy::program()) else {
            return Vec::new();
        };
        let here = |pid: &u32| {
            link(*pid, "cwd").as_ref() == Some(&folder)
                && link(*pid, "exe").as_ref() == Some(&envoy)
        };
        entries.filter(here).collect()
    }

    /// The number of the pod's Envoys.
    pub fn processes(&self) -> usize {
        self.envoys().len()
    }

    /// The CPU seconds that the agent and Envoy have used.
    pub fn cpu_seconds(&self) -> Result<[f64; 2]> {
        let envoys = self
            .envoys()
            .into_iter()
            .map(|pid| Ok(usage(pid)?.cpu_seconds))
            .sum::<Result<f64>>()?;
        Ok([usage(self.agent.id())?.cpu_seconds, envoys])
    }

    /// Whether the bootstrap exists.
    pub fn has_bootstrap(&self) -> bool {
        self.folder
            .path()
            .join("etc/istio/proxy/envoy-rev.json")
            .exists()
    }

    /// Sends SIGTERM to the agent and returns its exit code.
    pub async fn stop(&mut self) -> Result<i32> {
        signal(self.agent.id(), "TERM")?;
        self.end().await
    }

    /// Kills the agent.
    pub fn kill(&mut self) -> Result<()> {
        self.agent.kill()?;
        self.agent.wait()?;
        Ok(())
    }

    /// Sends Envoy a signal.
    pub fn signal_envoy(&self, name: &str) -> Result<()> {
        self.envoys()
            .into_iter()
            .try_for_each(|pid| signal(pid, name))
    }

    /// Waits until the agent exits and returns its exit code.
    pub async fn end(&mut self) -> Result<i32> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.agent.try_wait()? {
                return Ok(status.code().unwrap_or(-1));
            }
            ensure!(
                Instant::now() < end,
                "the agent does not end:\n{}",
                self.log()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Fails only if it has exited already.
        drop(self.agent.kill());
        drop(self.agent.wait());
        // Istio's agent leaves its Envoy behind when it is killed.
        drop(self.signal_envoy("KILL"));
    }
}

/// A directory with the token of a service account.
fn folder_with_token(server: &Server) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let tokens = folder.path().join("var/run/secrets/tokens");
    fs::create_dir_all(&tokens)?;
    fs::write(tokens.join("istio-token"), server.issuer.token(json!({})))?;
    Ok(folder)
}

/// Sends a process a signal by name, such as `TERM`.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()?;
    ensure!(status.success(), "failed to send SIG{name} to {pid}");
    Ok(())
}
