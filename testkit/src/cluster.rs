//! A real Kubernetes control plane: etcd, kube-apiserver, and optionally kube-controller-manager.
//!
//! The programs come from `scripts/kube` (or `KUBEBUILDER_ASSETS`). Everything is in a temporary
//! directory and on its own loopback ports, and ends with its handle or with the process that holds
//! it, even if that panics or is killed.

mod access;
mod crds;
mod objects;
mod seed;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use tempfile::TempDir;
use tokio::time::Instant;

pub use crds::gateway_api_definition;
pub use objects::{Writer, plural};
pub use seed::World;

use crate::guard::Guard;
use crate::process::Process;
use crate::{client, ports};

/// Timeout until each part is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The token of the cluster's administrator.
const ADMIN_TOKEN: &str = "navarch-test-admin";
/// The range of a cluster's Service addresses.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Optional parts of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    /// The controllers that kube-controller-manager runs, by name, such as
    /// `endpointslice-controller`; if empty, it is not started.
    pub controllers: Vec<String>,
    /// Further flags of the API server.
    pub api_server_flags: Vec<String>,
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// etcd, with the guard that ends it.
    etcd: Part,
    /// kube-apiserver; `None` while it is stopped.
    api_server: Option<Part>,
    /// kube-controller-manager.
    controllers: Option<Part>,
    /// The directory of the programs.
    programs: PathBuf,
    /// The address of the API server (HTTPS).
    pub address: SocketAddr,
    /// The address of etcd (HTTP).
    pub etcd_address: SocketAddr,
    /// The further flags of the API server.
    api_server_flags: Vec<String>,
    /// Data, keys, certificates, kubeconfigs, logs.
    folder: TempDir,
    /// Removes the directory if it cannot be dropped.
    sweeper: Option<Guard>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(sweeper) = self.sweeper.take() {
            sweeper.release();
        }
    }
}

/// A process, and the guard that ends it when the test process dies.
#[derive(Debug)]
struct Part {
    /// The process; killed when dropped.
    process: Process,
    /// Ends it if it cannot be dropped.
    guard: Option<Guard>,
}

impl Part {
    /// Starts a program of the cluster; its log is `<name>.log`.
    fn start(name: &str, program: &Path, args: &[String], folder: &Path) -> Result<Self> {
        let process = Process::start(name, program, args, &folder.join(format!("{name}.log")))?;
        let guard = Guard::over(&[process.pid()], None)?;
        Ok(Self {
            process,
            guard: Some(guard),
        })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The handle kills the process and waits for it; afterwards its PID may be reused.
        if let Some(guard) = self.guard.take() {
            guard.release();
        }
    }
}

/// The directory with the programs of a cluster.
///
/// # Errors
/// If it does not exist.
pub fn programs() -> Result<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let tools = crate::envoy::program()
        .parent()
        .and_then(Path::parent)
        .map(|tools| tools.join("kube"));
    let found = assets
        .into_iter()
        .chain(tools)
        .find(|folder| folder.join("kube-apiserver").exists());
    found.context("no Kubernetes programs: run `make tools` (scripts/kube)")
}

impl Cluster {
    /// Starts etcd and the API server and waits until they are ready.
    ///
    /// # Errors
    /// If a program is missing (run `make tools`) or does not become ready.
    pub async fn start() -> Result<Self> {
        Self::start_with(ClusterConfig::default()).await
    }

    /// Like [`Cluster::start`], with optional parts.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_with(config: ClusterConfig) -> Result<Self> {
        let programs = programs()?;
        let folder = tempfile::Builder::new()
            .prefix("navarch-cluster-")
            .tempdir()?;
        let loopback = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let address = loopback()?;
        let etcd_address = loopback()?;
        let peer_address = loopback()?;

        let sweeper = Some(Guard::over(&[], Some(folder.path()))?);
        write_keys(folder.path())?;
        let etcd = Part::start(
            "etcd",
            &programs.join("etcd"),
            &etcd_flags(folder.path(), etcd_address, peer_address),
            folder.path(),
        )?;

        let mut cluster = Self {
            etcd,
            api_server: None,
            controllers: None,
            programs,
            address,
            etcd_address,
            api_server_flags: config.api_server_flags,
            folder,
            sweeper,
        };

        cluster.wait_etcd().await?;
        cluster.start_api_server().await?;
        if !config.controllers.is_empty() {
            cluster.start_controllers(&config.controllers)?;
        }

        Ok(cluster)
    }

    /// Waits until etcd responds.
    async fn wait_etcd(&mut self) -> Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        while !client::get(self.etcd_address, "etcd", "/health", &[])
            .await
            .is_ok_and(|reply| reply.status == 200)
        {
            self.etcd.process.check_running()?;
            ensure!(
                Instant::now() < end,
                "etcd is not ready:\n{}",
                self.etcd.process.output()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Starts the API server at the same address, and waits until it is ready.
    ///
    /// # Errors
    /// If it ends or does not become ready.
    pub async fn start_api_server(&mut self) -> Result<()> {
        let flags = self.api_server_flags();
        let part = Part::start(
            "kube-apiserver",
            &self.programs.join("kube-apiserver"),
            &flags,
            self.folder.path(),
        )?;

        let process = &mut self.api_server.insert(part).process;
        let end = Instant::now() + START_TIMEOUT;
        let certificate = self.folder.path().join("certificates/apiserver.crt");

        // It generates its certificate at start, and creates the file before the content; clients
        // can connect only after that.
        let is_written = |text: String| text.trim_end().ends_with("-----END CERTIFICATE-----");
        while !std::fs::read_to_string(&certificate).is_ok_and(is_written) {
            process.check_running()?;
            ensure!(
                Instant::now() < end,
                "kube-apiserver has no certificate:\n{}",
                process.output()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }

        self.write_admin_kubeconfig()?;
        let client = self.client().await?;

        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match client.request_text(request).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    bail!(
                        "kube-apiserver is not ready ({error}):\n{}",
                        self.api_server_output()
                    )
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }

            if let Some(part) = &mut self.api_server {
                part.process.check_running()?;
            }
        }
    }

    /// Kills the API server like a crash. Its data stays in etcd.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Stops the API server's process (SIGSTOP) or continues it: connections stay open, but
    /// requests get no response.
    ///
    /// # Errors
    /// If it is not running.
    pub fn freeze_api_server(&self, frozen: bool) -> Result<()> {
        let part = self
            .api_server
            .as_ref()
            .context("the API server does not run")?;
        part.process.signal(if frozen { "STOP" } else { "CONT" })
    }

    /// Standard output and error of kube-apiserver so far; empty if it does not run.
    #[must_use]
    pub fn api_server_output(&self) -> String {
        self.api_server
            .as_ref()
            .map(|part| part.process.output())
            .unwrap_or_default()
    }

    /// Starts kube-controller-manager with these controllers.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_controllers(&mut self, controllers: &[String]) -> Result<()> {
        let flags = vec![
            format!("--kubeconfig={}", self.admin_kubeconfig().display()),
            format!("--controllers={}", controllers.join(",")),
            format!(
                "--service-account-private-key-file={}",
                self.folder.path().join("service-account.key").display()
            ),
            "--use-service-account-credentials=false".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            // Without rate limits, as tests wait for it.
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];

        let program = self.programs.join("kube-controller-manager");
        self.controllers = Some(Part::start(
            "kube-controller-manager",
            &program,
            &flags,
            self.folder.path(),
        )?);

        Ok(())
    }

    /// The output of kube-controller-manager.
    #[must_use]
    pub fn controllers_output(&self) -> String {
        self.controllers
            .as_ref()
            .map(|part| part.process.output())
            .unwrap_or_default()
    }

    /// The directory of the cluster: keys, certificates, kubeconfigs, logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a program of the cluster, such as `kubectl`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Compacts etcd to the current revision: watches and pages that started earlier expire (410
    /// Gone).
    ///
    /// # Errors
    /// If etcd fails.
    pub async fn compact(&self) -> Result<()> {
        let post =
            |path: &'static str, body: String| client::post(self.etcd_address, "etcd", path, body);
        let status: serde_json::Value = serde_json::from_str(
            &post("/v3/kv/range", r#"{"key":"AA==","limit":1}"#.to_owned())
                .await?
                .body,
        )?;
        let revision = status
            .pointer("/header/revision")
            .and_then(serde_json::Value::as_str)
            .context("no revision")?;

        let reply = post(
            "/v3/kv/compaction",
            serde_json::json!({"revision": revision, "physical": true}).to_string(),
        )
        .await?;
        ensure!(reply.status == 200, "etcd did not compact: {}", reply.body);

        Ok(())
    }

    fn api_server_flags(&self) -> Vec<String> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let mut flags = vec![
            format!("--etcd-servers=http://{}", self.etcd_address),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.address.port()),
            format!("--cert-dir={}", file("certificates")),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("service-account.pub")),
            format!(
                "--service-account-signing-key-file={}",
                file("service-account.key")
            ),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--allow-privileged=true".to_owned(),
            // Pods need no service account, which a controller would have to create.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // No client reaches it by its Service.
            "--endpoint-reconciler-type=none".to_owned(),
            "--profiling=false".to_owned(),
        ];

        flags.extend(self.api_server_flags.iter().cloned());
        flags
    }
}

/// The flags of etcd. Data need not survive a crash of the machine.
fn etcd_flags(folder: &Path, address: SocketAddr, peers: SocketAddr) -> Vec<String> {
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://{address}"),
        format!("--advertise-client-urls=http://{address}"),
        format!("--listen-peer-urls=http://{peers}"),
        format!("--initial-advertise-peer-urls=http://{peers}"),
        format!("--initial-cluster=default=http://{peers}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

/// Writes the key of service accounts and the tokens of the administrator.
fn write_keys(folder: &Path) -> Result<()> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    std::fs::write(folder.join("service-account.key"), key.serialize_pem())?;
    std::fs::write(folder.join("service-account.pub"), key.public_key_pem())?;
    std::fs::write(
        folder.join("tokens.csv"),
        format!("{ADMIN_TOKEN},admin,admin,system:masters\n"),
    )?;
    Ok(())
}
