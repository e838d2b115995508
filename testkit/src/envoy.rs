//! A real Envoy, connected over ADS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client;
use crate::process::Process;

/// Timeout for starting, and for applying a configuration.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The identity of an Envoy, and its servers.
#[derive(Clone, Debug)]
pub struct EnvoyConfig {
    /// `sidecar` or `router`.
    pub kind: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's address.
    pub ip: String,
    /// Additional metadata.
    pub metadata: Value,
    /// The xDS server.
    pub xds: SocketAddr,
    /// Delta or state-of-the-world.
    pub protocol: AdsProtocol,
    /// The SDS server of the workload's certificates (`sds-grpc`, in Istio the local agent), if
    /// any.
    pub sds: Option<SocketAddr>,
    /// The token that it sends to the xDS server, if any.
    pub token: Option<String>,
}

/// The variant of ADS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdsProtocol {
    /// `DELTA_GRPC`.
    Delta,
    /// `DELTA_GRPC`, with VHDS.
    FineGrained,
    /// `GRPC`.
    StateOfTheWorld,
}

/// A running Envoy. It is killed when dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    /// The admin address.
    pub admin: SocketAddr,
    /// Bootstrap and log.
    _folder: TempDir,
}

/// The path where `scripts/tools` installs Envoy.
#[must_use]
pub fn program() -> PathBuf {
    tools().join("bin/envoy")
}

/// The path where `scripts/tools` installs the version before, to which Envoy is replaced in tests.
#[must_use]
pub fn former_program() -> PathBuf {
    tools().join("bin/envoy-former")
}

/// The folder of `scripts/tools`.
pub(crate) fn tools() -> PathBuf {
    std::env::var_os("NAVARCH_TOOLS")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            let home = std::env::var_os("HOME")
                .map(PathBuf::from)
                .unwrap_or_default();
            home.join(".cache/navarch/tools")
        })
}

impl Envoy {
    /// Starts an Envoy; it may not have any configuration yet.
    ///
    /// # Errors
    /// If the program is missing (run `make tools`) or its admin port does not respond.
    pub async fn start(config: &EnvoyConfig) -> Result<Self> {
        Self::start_program(&program(), config).await
    }

    /// Like [`Envoy::start`], with the given program.
    ///
    /// # Errors
    /// As [`Envoy::start`].
    pub async fn start_program(program: &Path, config: &EnvoyConfig) -> Result<Self> {
        if !program.exists() {
            bail!("{} is missing: run `make tools`", program.display());
        }

        let folder = tempfile::tempdir()?;
        let bootstrap = folder.path().join("bootstrap.json");
        let admin_path = folder.path().join("admin");
        std::fs::write(&bootstrap, config.bootstrap().to_string())?;
        let args: Vec<String> = [
            "-c",
            &bootstrap.to_string_lossy(),
            "--admin-address-path",
            &admin_path.to_string_lossy(),
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "-l",
            "warning",
            "--component-log-level",
            "config:info,upstream:info",
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        let mut process =
            Process::start("envoy", program, &args, &folder.path().join("envoy.log"))?;
        let admin = admin_address(&mut process, &admin_path).await?;
        let mut envoy = Self {
            process,
            admin,
            _folder: folder,
        };
        envoy.wait("its admin port to answer", |_| true).await?;

        Ok(envoy)
    }

    /// Requests a page of the admin interface.
    ///
    /// # Errors
    /// If it does not respond.
    pub async fn admin(&self, path: &str) -> Result<String> {
        Ok(client::get(self.admin, "admin", path, &[]).await?.body)
    }

    /// All counters and gauges by name.
    ///
    /// # Errors
    /// If the admin interface does not respond.
    pub async fn stats(&self) -> Result<Stats> {
        Ok(Stats(self.admin("/stats").await?))
    }

    /// Checks that it has accepted all updates.
    ///
    /// # Errors
    /// With its output if it has rejected one, and if the admin interface does not respond.
    pub async fn ensure_no_update_rejected(&self) -> Result<()> {
        let rejected = self.stats().await?.rejected();
        ensure!(
            rejected == 0,
            "{rejected} updates were rejected:\n{}",
            self.output()
        );
        Ok(())
    }

    /// Waits until the stats satisfy a condition.
    ///
    /// # Errors
    /// On a timeout, or if Envoy has ended.
    pub async fn wait(&mut self, what: &str, done: impl Fn(&Stats) -> bool) -> Result<Stats> {
        let end = tokio::time::Instant::now() + START_TIMEOUT;
        loop {
            self.process.check_running()?;
            if let Ok(stats) = self.stats().await
                && done(&stats)
            {
                return Ok(stats);
            }
            if tokio::time::Instant::now() > end {
                bail!(
                    "waited {START_TIMEOUT:?} for {what}; log of envoy:\n{}",
                    self.process.output()
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until Envoy has clusters and listeners, and is live.
    ///
    /// # Errors
    /// As [`Envoy::wait`].
    pub async fn wait_ready(&mut self) -> Result<Stats> {
        let live = |stats: &Stats| {
            stats.get("server.state") == Some(0)
                && stats.get("listener_manager.workers_started") == Some(1)
        };
        self.wait("its first configuration", live).await
    }

    /// Stops it (SIGSTOP) or continues it: connections stay open, but requests get no response.
    ///
    /// # Errors
    /// If it is not running.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        self.process.signal(if frozen { "STOP" } else { "CONT" })
    }

    /// The output of the process.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// The current configuration.
    ///
    /// # Errors
    /// If the admin interface does not respond with JSON.
    pub async fn config_dump(&self) -> Result<Value> {
        serde_json::from_str(&self.admin("/config_dump?include_eds").await?)
            .context("config_dump is JSON")
    }
}

/// The admin address of an Envoy, once it has written that to a file.
async fn admin_address(process: &mut Process, file: &Path) -> Result<SocketAddr> {
    let end = tokio::time::Instant::now() + START_TIMEOUT;

    loop {
        let written = std::fs::read_to_string(file).unwrap_or_default();

        // The file may be written partially.
        if let Ok(address) = written.trim().parse::<SocketAddr>()
            && address.port() != 0
            && client::get(address, "admin", "/server_info", &[])
                .await
                .is_ok()
        {
            return Ok(address);
        }
        process.check_running()?;

        if tokio::time::Instant::now() > end {
            bail!(
                "the address of the admin port is {written:?}; log of envoy:\n{}",
                process.output()
            );
        }

        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The text of `/stats`.
#[derive(Clone, Debug)]
pub struct Stats(String);

impl Stats {
    /// A counter or gauge by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let line = self.0.lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(": "))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// The sum of all counters with this suffix.
    #[must_use]
    pub fn sum(&self, suffix: &str) -> u64 {
        let rows = self.0.lines().filter_map(|line| line.split_once(": "));
        rows.filter(|(name, _)| name.ends_with(suffix))
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum()
    }

    /// Number of updates that Envoy rejected, of all types.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.sum(".update_rejected")
    }
}

impl EnvoyConfig {
    /// The clusters of its servers.
    fn static_clusters(&self) -> Vec<Value> {
        let sds = self.sds.map(|sds| grpc_cluster("sds-grpc", sds));
        std::iter::once(grpc_cluster("xds-grpc", self.xds))
            .chain(sds)
            .collect()
    }

    /// The bootstrap: node, ADS and the static cluster of the server. Envoy chooses the port of its
    /// admin interface.
    fn bootstrap(&self) -> Value {
        let Self {
            kind,
            pod,
            namespace,
            ip,
            ..
        } = self;

        let mut metadata = json!({
            "NAMESPACE": namespace,
            "NAME": pod,
            "CLUSTER_ID": "Kubernetes",
            "ISTIO_VERSION": "1.32.0",
            "MESH_ID": "cluster.local",
            "INSTANCE_IPS": ip,
        });

        if let (Some(to), Some(from)) = (metadata.as_object_mut(), self.metadata.as_object()) {
            to.extend(from.clone());
        }

        if let (AdsProtocol::FineGrained, Some(to)) = (self.protocol, metadata.as_object_mut()) {
            to.insert("FINE_GRAINED_ROUTES".to_owned(), Value::Bool(true));
        }

        let api_type = match self.protocol {
            AdsProtocol::Delta | AdsProtocol::FineGrained => "DELTA_GRPC",
            AdsProtocol::StateOfTheWorld => "GRPC",
        };

        let metadata_of_requests: Vec<Value> = self
            .token
            .iter()
            .map(|token| json!({"key": "authorization", "value": format!("Bearer {token}")}))
            .collect();

        json!({
            "node": {
                "id": format!("{kind}~{ip}~{pod}.{namespace}~{namespace}.svc.cluster.local"),
                "cluster": format!("{pod}.{namespace}"),
                "metadata": metadata,
            },
            "admin": {"address": socket(SocketAddr::from(([127, 0, 0, 1], 0)))},
            "dynamic_resources": {
                "ads_config": {
                    "api_type": api_type,
                    "transport_api_version": "V3",
                    "grpc_services": [{
                        "envoy_grpc": {"cluster_name": "xds-grpc"},
                        "initial_metadata": metadata_of_requests,
                    }],
                },
                "cds_config": {"ads": {}, "resource_api_version": "V3"},
                "lds_config": {"ads": {}, "resource_api_version": "V3"},
            },
            "static_resources": {"clusters": self.static_clusters()},
            "bootstrap_extensions": [{
                "name": "envoy.bootstrap.internal_listener",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
                },
            }],
        })
    }
}

/// A static HTTP/2 cluster with one endpoint.
fn grpc_cluster(name: &str, address: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(address)}}]}],
        },
    })
}

/// An address in Envoy's JSON.
fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
