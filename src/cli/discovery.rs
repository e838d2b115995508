//! `navarch discovery`: the control plane. Flags are pilot-discovery's, in kebab case and in Istio's own spelling.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::limits::{self, KeepaliveFlags};
use super::{connections, environment, files, memory};
use crate::admin::Build;
use crate::api;
use crate::net::destination::AddressPolicy;
use crate::push::worker::Debounce;
use crate::security::serving::GivenFiles;
use crate::server::{self, Config, ListenAddress, SecurityConfig, SourceAddress, SourcesConfig};
use crate::source::{KeyConfig, KubernetesScope, ReadKinds};

/// Run the control plane: read configuration, serve xDS to proxies.
///
/// Addresses are host:port, `:port` for all addresses of the machine, or empty to switch a server off. Environment variables
/// are istiod's (`CLUSTER_ID`, `POD_NAMESPACE`, `REVISION`, `ISTIO_WATCH_NAMESPACE`, `PILOT_…`). SIGUSR1 reads all files anew; SIGTERM
/// lets proxies go and ends.
#[derive(Args, Debug)]
pub(super) struct Discovery {
    /// Directory of YAML and JSON files to take the configuration from, watched for changes, in place of the Kubernetes API
    #[arg(long, alias = "configDir", value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// Where configuration comes from, in place of the mesh config's configSources: fs:///path, k8s://; can be repeated,
    /// and of objects with the same name the first counts
    #[arg(long = "config-source", alias = "configSource", value_name = "URL")]
    config_sources: Vec<SourceAddress>,
    /// Where services come from besides ServiceEntries: Kubernetes, or nothing where it is empty
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "Kubernetes", value_parser = registry)]
    registries: Vec<bool>,
    /// Kubeconfig of the cluster to read; without it the cluster that Navarch runs in
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How long a connection to the Kubernetes API may be silent before it counts as dead; a watch on which nothing happens
    /// is told so about every minute
    #[arg(long, value_name = "DURATION", default_value = "100s", value_parser = duration)]
    kubernetes_idle_timeout: Duration,
    /// Revision of this control plane: mesh configuration labelled with another istio.io/rev is passed over, mesh config is in
    /// the ConfigMap istio-REVISION; REVISION if unset
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// File with the mesh config; ./etc/istio/config/mesh where that exists, else the ConfigMap istio of the cluster
    #[arg(long, alias = "meshConfig", value_name = "FILE")]
    mesh_config: Option<PathBuf>,
    /// File with the mesh networks; ./etc/istio/config/meshNetworks where that exists, else the same ConfigMap
    #[arg(long, alias = "networksConfig", value_name = "FILE")]
    networks_config: Option<PathBuf>,
    /// Plaintext xDS
    #[arg(long, alias = "grpcAddr", value_name = "ADDRESS", default_value = ":15010")]
    grpc_addr: ListenAddress,
    /// xDS and certificates over TLS
    #[arg(long, alias = "secureGRPCAddr", alias = "secureGrpcAddr", value_name = "ADDRESS", default_value = ":15012")]
    secure_grpc_addr: ListenAddress,
    /// Readiness and debug API
    #[arg(long, alias = "httpAddr", value_name = "ADDRESS", default_value = ":8080")]
    http_addr: ListenAddress,
    /// Webhooks over TLS; empty, and they are on the port of --http-addr, for whoever ends TLS before it
    #[arg(long, alias = "httpsAddr", value_name = "ADDRESS", default_value = ":15017")]
    https_addr: ListenAddress,
    /// Metrics, version and debug API
    #[arg(long, alias = "monitoringAddr", value_name = "ADDRESS", default_value = ":15014")]
    monitoring_addr: ListenAddress,
    /// Directory that keeps the root of a self-signed CA; in memory if unset. Not used where there is a CA in ROOT_CA_DIR
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// File with Navarch's own certificate and its chain; ./var/run/secrets/istiod/tls/tls.crt where that exists, else the CA
    /// issues one
    #[arg(long, alias = "tlsCertFile", value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// File with its key; ./var/run/secrets/istiod/tls/tls.key
    #[arg(long, alias = "tlsKeyFile", value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// File with the roots by which it is known; ./var/run/secrets/istiod/ca/root-cert.pem, or ca.crt beside the certificate
    #[arg(long, alias = "caCertFile", value_name = "FILE")]
    ca_cert_file: Option<PathBuf>,
    /// DNS suffix of Kubernetes services
    #[arg(long, value_name = "SUFFIX", default_value = "cluster.local")]
    domain: String,
    /// Name of the cluster that Navarch runs in; CLUSTER_ID if unset
    #[arg(long = "cluster-id", alias = "clusterID", value_name = "NAME")]
    cluster_id: Option<String>,
    /// Namespace that Navarch runs in; POD_NAMESPACE if unset
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    keepalive: KeepaliveFlags,
    /// How long proxies have to go when Navarch ends
    #[arg(long, alias = "shutdownDuration", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    shutdown_duration: Duration,
    /// What to log: error, warn, info, debug or trace, also by room as in `info,navarch::xds=debug`
    #[arg(long, value_name = "LEVELS", default_value = "info")]
    log_level: String,
    /// Log JSON objects
    #[arg(long, alias = "log_as_json")]
    log_as_json: bool,
}

impl Discovery {
    /// Runs until told to end.
    pub(super) fn run(self) -> anyhow::Result<()> {
        memory::do_without_huge_pages();
        self.start_log()?;
        let config = self.config()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
        runtime.block_on(server::run(config))
    }

    /// Flags and environment as the server's settings.
    fn config(self) -> anyhow::Result<Config> {
        let mut settings = environment::settings(environment::variable)?;
        settings.domain_suffix = self.domain;
        if let Some(cluster) = self.cluster_id {
            settings.cluster_id = crate::api::names::ClusterId::new(cluster);
        }
        if let Some(namespace) = self.namespace {
            settings.system_namespace = crate::api::names::Namespace::new(namespace);
        }
        let files = files::raise_limit();
        let keys = keys()?;
        let security = super::security::config(environment::variable)?;
        let given = given(self.tls_cert_file, self.tls_key_file, self.ca_cert_file);
        let security = SecurityConfig { state: self.state_dir, fetched: keys.addresses.clone(), given, ..security };
        Ok(Config {
            settings,
            debounce: debounce()?,
            limits: limits::limits(environment::variable, &self.keepalive)?,
            client_memory: limits::client_memory(environment::variable)?,
            resolves_gateways: environment::flag(environment::variable, "RESOLVE_HOSTNAME_GATEWAYS", true)?,
            keys,
            secure: self.secure_grpc_addr,
            security,
            https: self.https_addr,
            webhooks: super::webhooks::config(environment::variable, self.revision.as_deref())?,
            injection: super::webhooks::injection(environment::variable, environment::all().into_iter().collect()),
            sources: SourcesConfig {
                addresses: self.config_sources,
                kubernetes_registry: self.registries.contains(&true),
                config_dir: self.config_dir,
                mesh_config: self.mesh_config.or_else(|| if_there("./etc/istio/config/mesh")),
                networks_config: self.networks_config.or_else(|| if_there("./etc/istio/config/meshNetworks")),
                kubeconfig: self.kubeconfig,
                scope: scope(self.revision.clone()),
                silence: self.kubernetes_idle_timeout,
                shared_mesh_config: text("SHARED_MESH_CONFIG"),
            },
            writing: super::writing::config(environment::variable, self.revision)?,
            grpc: self.grpc_addr,
            http: self.http_addr,
            monitoring: self.monitoring_addr,
            files,
            connections: connections::limits(environment::variable, files)?,
            shutdown: self.shutdown_duration,
            build: Build { version: env!("NAVARCH_VERSION"), revision: env!("NAVARCH_COMMIT") },
        })
    }

    /// Sends logs to standard output.
    fn start_log(&self) -> anyhow::Result<()> {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log_level)
            .with_context(|| format!("--log-level {:?} cannot be read", self.log_level))?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
        let started = if self.log_as_json { log.json().try_init() } else { log.try_init() };
        started.map_err(|error| anyhow::anyhow!("no log: {error}"))
    }
}

/// `PILOT_JWT_PUB_KEY_REFRESH_INTERVAL` (20 min), `BLOCKED_CIDRS_IN_JWKS_URIS`, and `NAVARCH_JWKS_ALLOW_LOOPBACK`, which
/// lets policies name servers on the control plane's own machine.
fn keys() -> anyhow::Result<KeyConfig> {
    let set = |name: &str| environment::variable(name).filter(|value| !value.is_empty());
    let refresh = match set("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL") {
        None => Duration::from_mins(20),
        Some(text) => api::duration::Duration::parse(&text)
            .ok()
            .and_then(api::duration::Duration::as_std)
            .filter(|interval| !interval.is_zero())
            .with_context(|| format!("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL={text:?} is no duration"))?,
    };
    let ranges = set("BLOCKED_CIDRS_IN_JWKS_URIS").unwrap_or_default();
    let blocked = api::cidr::Cidr::parse_list(&ranges)
        .map_err(|part| anyhow::anyhow!("BLOCKED_CIDRS_IN_JWKS_URIS={ranges:?}: {part:?} is no range of addresses"))?;
    let allow_loopback = set("NAVARCH_JWKS_ALLOW_LOOPBACK").is_some_and(|value| value == "true");
    Ok(KeyConfig { refresh, addresses: AddressPolicy { allow_loopback, blocked } })
}

/// The files of Navarch's own certificate: those of the flags, else those where istiod looks, if they are there.
fn given(chain: Option<PathBuf>, key: Option<PathBuf>, roots: Option<PathBuf>) -> Option<GivenFiles> {
    let there = |name: &str| if_there(&format!("./var/run/secrets/istiod/{name}"));
    let (chain, key) = chain.zip(key).or_else(|| there("tls/tls.crt").zip(there("tls/tls.key")))?;
    let roots = roots.or_else(|| there("ca/root-cert.pem")).or_else(|| there("tls/ca.crt"));
    Some(GivenFiles { chain, key, roots })
}

/// `PILOT_DEBOUNCE_AFTER` and `PILOT_DEBOUNCE_MAX`: obeyed when set, else changes are pushed at once.
fn debounce() -> anyhow::Result<Debounce> {
    let read = |name: &str| match environment::variable(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => duration(&value).map(Some).with_context(|| format!("{name}={value:?}")),
    };
    let after = read("PILOT_DEBOUNCE_AFTER")?.unwrap_or_default();
    let max = read("PILOT_DEBOUNCE_MAX")?.unwrap_or(Duration::from_secs(10));
    Ok(Debounce { after, max })
}

/// A variable that is set and not empty.
fn text(name: &str) -> Option<String> {
    environment::variable(name).filter(|value| !value.is_empty())
}

/// What of the Kubernetes API is read.
fn scope(revision: Option<String>) -> KubernetesScope {
    KubernetesScope {
        kinds: ReadKinds::All,
        namespace: crate::api::names::Namespace::new(text("ISTIO_WATCH_NAMESPACE").unwrap_or_default()),
        revision: revision.or_else(|| text("REVISION")).unwrap_or_default(),
        system_namespace: crate::api::names::Namespace::default(),
        ignored: text("PILOT_IGNORE_RESOURCES").unwrap_or_default(),
        included: text("PILOT_INCLUDE_RESOURCES").unwrap_or_default(),
    }
}

/// A name of `--registries`, as whether it is Kubernetes.
fn registry(name: &str) -> anyhow::Result<bool> {
    match name {
        "Kubernetes" => Ok(true),
        "" => Ok(false),
        _ => anyhow::bail!("there is Kubernetes alone"),
    }
}

/// The path, if it exists.
fn if_there(path: &str) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| path.exists())
}

/// A duration as Go writes it, such as `10s` or `1m30s`.
pub(super) fn duration(text: &str) -> anyhow::Result<Duration> {
    let duration = crate::api::duration::Duration::parse(text)?;
    duration.as_std().with_context(|| format!("{text} is negative"))
}
