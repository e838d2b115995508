//! `navarch discovery`: the control plane. Flags are pilot-discovery's, in kebab case and in
//! Istio's own spelling.

mod flag_values;
mod variables;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::environment::{self, Variables};
use super::istiod_variables::OF_CACHES;
use super::limits::{self, KeepaliveFlags};
use super::log::LogFlags;
use super::pilot_flags::WithoutEffect;
use super::{connections, files};
use crate::admin::{Build, LogScopes};
use crate::server::{
    self, Config, ListenAddress, RecordConfig, RemotesConfig, SecurityConfig, SourcesConfig,
    WritingConfig,
};
pub(super) use flag_values::duration;
use flag_values::{
    RegistryName, alias, aliases, control, existing_path, given, path, per_second, rate, registry,
};
use navarch_api::names::ClusterId;
use navarch_api::settings::Settings;
use navarch_base::compliance::CompliancePolicy;
use navarch_net::cryptography;
use navarch_rollout::QueryNamespaces;
use navarch_security::tls_rules::TlsRules;
use navarch_source::SourceAddress;
pub(super) use variables::scope;
use variables::{debounce, debug, keys, kubeconfig, settings, text, traces};

/// Set by Kubernetes in every container.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Run the control plane: read configuration, serve xDS to proxies.
///
/// Addresses are host:port, `:port` for all addresses of the machine, or empty to disable a server;
/// the services of --grpc-addr, --monitoring-addr and --https-addr are then on the port of
/// --http-addr. Environment variables are those of istiod (`CLUSTER_ID`, `POD_NAMESPACE`,
/// `REVISION`, `ISTIO_WATCH_NAMESPACE`, `PILOT_…`). SIGUSR1 reloads all files; SIGTERM drains
/// proxies and stops the process.
#[derive(Args, Debug)]
pub(super) struct Discovery {
    /// Directory of YAML and JSON files with the configuration, watched for changes, instead of the
    /// Kubernetes API
    #[arg(long, alias = "configDir", value_name = "DIR", value_parser = path)]
    config_dir: Option<PathBuf>,
    /// Source of configuration, instead of configSources of the mesh config: fs:///path,
    /// xds://host:port (in plain text), k8s://; can be repeated; for objects with the same name the
    /// first source takes precedence
    #[arg(long = "config-source", alias = "configSource", value_name = "URL")]
    config_sources: Vec<SourceAddress>,
    /// Service registries besides ServiceEntries: Kubernetes, Mock (the services of Istio's own
    /// tests), or empty for none. Kubernetes if unset, except with --config-dir outside a cluster
    /// and without a kubeconfig
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = registry)]
    registries: Option<Vec<RegistryName>>,
    /// Kubeconfig of the cluster to read; if unset, KUBECONFIG if the file exists, else the cluster
    /// that Navarch runs in
    #[arg(long, value_name = "FILE", value_parser = path)]
    kubeconfig: Option<PathBuf>,
    /// Idle timeout of connections to the Kubernetes API; an idle watch receives a bookmark about
    /// every minute
    #[arg(long, value_name = "DURATION", default_value = "100s", value_parser = duration)]
    kubernetes_idle_timeout: Duration,
    /// Revision of this control plane: mesh configuration labelled with another istio.io/rev is
    /// ignored, mesh config is in the ConfigMap istio-REVISION; REVISION if unset
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// File with the mesh config; ./etc/istio/config/mesh where that exists, else the ConfigMap
    /// istio of the cluster
    #[arg(long, alias = "meshConfig", value_name = "FILE", value_parser = path)]
    mesh_config: Option<PathBuf>,
    /// File with the mesh networks; ./etc/istio/config/meshNetworks where that exists, else the
    /// same ConfigMap
    #[arg(long, alias = "networksConfig", value_name = "FILE", value_parser = path)]
    networks_config: Option<PathBuf>,
    /// Plaintext xDS; if empty, it is on the port of --http-addr
    #[arg(
        long,
        alias = "grpcAddr",
        value_name = "ADDRESS",
        default_value = ":15010"
    )]
    grpc_addr: ListenAddress,
    /// xDS and certificates over TLS
    #[arg(
        long,
        alias = "secureGRPCAddr",
        alias = "secureGrpcAddr",
        value_name = "ADDRESS",
        default_value = ":15012"
    )]
    secure_grpc_addr: ListenAddress,
    /// Readiness and debug API
    #[arg(
        long,
        alias = "httpAddr",
        value_name = "ADDRESS",
        default_value = ":8080"
    )]
    http_addr: ListenAddress,
    /// Webhooks over TLS; if empty, they are on the port of --http-addr without TLS, for use behind
    /// a TLS terminator
    #[arg(
        long,
        alias = "httpsAddr",
        value_name = "ADDRESS",
        default_value = ":15017"
    )]
    https_addr: ListenAddress,
    /// Metrics, version and debug API; if empty, they are on the port of --http-addr
    #[arg(
        long,
        alias = "monitoringAddr",
        value_name = "ADDRESS",
        default_value = ":15014"
    )]
    monitoring_addr: ListenAddress,
    /// Directory that stores the root of a self-signed CA; in memory if unset. Not used if there is
    /// a CA in ROOT_CA_DIR
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// File with Navarch's own certificate and its chain; ./var/run/secrets/istiod/tls/tls.crt if
    /// that exists, else the CA issues one
    #[arg(long, alias = "tlsCertFile", value_name = "FILE", value_parser = path)]
    tls_cert_file: Option<PathBuf>,
    /// File with the key of that certificate; ./var/run/secrets/istiod/tls/tls.key
    #[arg(long, alias = "tlsKeyFile", value_name = "FILE", value_parser = path)]
    tls_key_file: Option<PathBuf>,
    /// File with the roots of that certificate; ./var/run/secrets/istiod/ca/root-cert.pem, or
    /// ca.crt beside the certificate
    #[arg(long, alias = "caCertFile", value_name = "FILE", value_parser = path)]
    ca_cert_file: Option<PathBuf>,
    /// Directory for a recording of all inputs and of all responses to proxies, for navarch replay;
    /// without private keys and other values of Secrets and without the environment of agents, but
    /// with all other metadata of proxies and with secrets in other objects. Each replica needs its
    /// own
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Maximum size of the recording, such as 512Mi; the oldest part is deleted first
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = limits::record_size)]
    record_max_size: u64,
    /// DNS suffix of Kubernetes services
    #[arg(long, value_name = "SUFFIX", default_value = "cluster.local")]
    domain: String,
    /// Name of the cluster that Navarch runs in; CLUSTER_ID if unset
    #[arg(long = "cluster-id", alias = "clusterID", value_name = "NAME")]
    cluster_id: Option<String>,
    /// Other names that proxies may use for a cluster, as ALIAS=CLUSTER, comma-separated
    #[arg(long, alias = "clusterAliases", value_name = "ALIAS=CLUSTER", value_delimiter = ',', value_parser = alias)]
    cluster_aliases: Vec<(String, String)>,
    /// Namespace of the Secrets with kubeconfigs of remote clusters; Navarch's own if unset
    #[arg(long, alias = "clusterRegistriesNamespace", value_name = "NAMESPACE")]
    cluster_registries_namespace: Option<String>,
    /// Namespace that Navarch runs in; POD_NAMESPACE if unset
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Namespace of istio-cni, whose pods determine when the taint of a node is removed; Navarch's
    /// own if unset
    #[arg(long, alias = "cniNamespace", value_name = "NAMESPACE")]
    cni_namespace: Option<String>,
    #[command(flatten)]
    keepalive: KeepaliveFlags,
    /// Time for proxies to disconnect when Navarch shuts down
    #[arg(long, alias = "shutdownDuration", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    shutdown_duration: Duration,
    /// Cipher suites of TLS 1.2, by Go's names, comma-separated; all secure ones if unset
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Minimum TLS version: 1.2 or 1.3
    #[arg(long, value_name = "VERSION", default_value = "1.2")]
    tls_min_version: String,
    /// Maximum average number of requests to the Kubernetes API per second; if unset, 80 if the
    /// burst is limited, else unlimited
    #[arg(long = "kubernetesApiQPS", alias = "kubernetes-api-qps", value_name = "NUMBER", value_parser = per_second)]
    kubernetes_api_qps: Option<f64>,
    /// Maximum burst of these requests; if unset, 160 if the requests per second are limited, else
    /// unlimited
    #[arg(long = "kubernetesApiBurst", alias = "kubernetes-api-burst", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    kubernetes_api_burst: Option<u32>,
    /// Port of ControlZ, for inspecting the process and setting its log levels; any free one if 0
    #[arg(
        long = "ctrlz_port",
        alias = "ctrlz-port",
        value_name = "PORT",
        default_value_t = 9876
    )]
    ctrlz_port: u16,
    /// Address of ControlZ; if empty, it is disabled. Only requests from the same machine are
    /// served
    #[arg(
        long = "ctrlz_address",
        alias = "ctrlz-address",
        value_name = "ADDRESS",
        default_value = "localhost"
    )]
    ctrlz_address: String,
    /// Serve profiles of CPU and memory under /debug/pprof, for go tool pprof
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    profile: bool,
    /// How to log.
    #[command(flatten)]
    log: LogFlags,
    /// Flags of pilot-discovery's.
    #[command(flatten)]
    without_effect: WithoutEffect,
}

impl Discovery {
    /// Runs until shutdown. `unknown` are ignored flags.
    pub(super) fn run(self, unknown: &[String]) -> anyhow::Result<()> {
        navarch_process::huge_pages::disable_huge_pages();
        let (scopes, log_scopes) = self.log.start()?;
        let variables = Variables::new(navarch_agent::cli::environment());
        warn_ignored("unknown scopes in --log_output_level", &scopes);
        warn_ignored("unknown flags", unknown);
        warn_ignored(
            "flags of pilot-discovery that have no effect",
            &self.flags_without_effect(),
        );

        let mut config = self.config(&variables, log_scopes)?;
        config.shown_variables = variables.shown();
        warn_ignored_variables(&variables);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;

        runtime.block_on(server::run(config))
    }

    /// The given flags of pilot-discovery that have no effect.
    pub(super) fn flags_without_effect(&self) -> Vec<String> {
        self.without_effect.given()
    }

    /// Builds the server's settings from flags and environment.
    pub(super) fn config(
        mut self,
        variables: &Variables,
        log_scopes: LogScopes,
    ) -> anyhow::Result<Config> {
        let variable = |name: &str| variables.get(name);
        self.unset_empty_paths();
        let mut settings = settings(variables)?;
        self.place(&mut settings);

        let remotes = self.remotes();
        let scope = scope(variables, self.revision.clone(), &settings);
        let kubeconfig = self.kubeconfig.or_else(|| kubeconfig(variables));
        let is_by_default = self.config_dir.is_none()
            || kubeconfig.is_some()
            || variables.get(IN_CLUSTER).is_some();

        let files = files::raise_limit();
        let keys = keys(variables)?;
        let (tls, never) = TlsRules::read(&self.tls_min_version, &self.tls_cipher_suites)?;
        warn_ignored("--tls-cipher-suites: ignored insecure suites", &never);
        warn_compliance(&variable("COMPLIANCE_POLICY").unwrap_or_default(), &tls);

        let security = super::security::config(variable)?;
        let given = given(self.tls_cert_file, self.tls_key_file, self.ca_cert_file)?;
        let fetched = keys.addresses.clone();
        let security = SecurityConfig {
            state: self.state_dir,
            fetched,
            given,
            tls,
            ..security
        };

        let limits = limits::limits(variable, &self.keepalive)?;
        let writing =
            super::writing::config(variable, self.revision.clone(), &settings, limits.max_age)?;
        let remotes = RemotesConfig {
            audiences: security.audiences.clone(),
            ..remotes
        };
        let remotes = super::remotes::config(variable, &settings, &scope, remotes)?;

        let sources = SourcesConfig {
            addresses: self.config_sources,
            kubernetes_registry: self.registries.as_ref().map_or(is_by_default, |names| {
                names.contains(&RegistryName::Kubernetes)
            }),
            mock_registry: self
                .registries
                .is_some_and(|names| names.contains(&RegistryName::Mock)),
            config_dir: self.config_dir,
            mesh_config: self
                .mesh_config
                .or_else(|| existing_path("./etc/istio/config/mesh")),
            networks_config: self
                .networks_config
                .or_else(|| existing_path("./etc/istio/config/meshNetworks")),
            kubeconfig,
            scope,
            idle_timeout: self.kubernetes_idle_timeout,
            rate: rate(self.kubernetes_api_qps, self.kubernetes_api_burst),
            shared_mesh_config: text(variables, "SHARED_MESH_CONFIG"),
        };

        Ok(Config {
            settings,
            debounce: debounce(variables)?,
            limits,
            encodings: limits::encodings(variable)?,
            client_memory: limits::client_memory(variable)?,
            objects_for_all: !environment::flag(variable, "ENABLE_XDS_API_GENERATOR_AUTH", true)?,
            quarantines: environment::flag(variable, "NAVARCH_QUARANTINE", true)?,
            prometheus: variable("NAVARCH_PROMETHEUS_URL").filter(|address| !address.is_empty()),
            query_namespaces: QueryNamespaces::parse(
                &variable("NAVARCH_ROLLOUT_QUERY_NAMESPACES").unwrap_or_default(),
            ),
            resolves_gateways: environment::flag(variable, "RESOLVE_HOSTNAME_GATEWAYS", true)?,
            traces: traces(variables),
            record: self.record.map(|dir| RecordConfig {
                dir,
                max_size: self.record_max_size,
            }),
            keys,
            secure: self.secure_grpc_addr,
            security,
            https: self.https_addr,
            webhooks: super::webhooks::config(variable, self.revision.as_deref())?,
            injection: super::webhooks::injection(variable, variables.all().clone())?,
            sources,
            remotes,
            writing: WritingConfig {
                cni_namespace: self.cni_namespace.filter(|name| !name.is_empty()),
                ..writing
            },
            grpc: self.grpc_addr,
            http: self.http_addr,
            monitoring: self.monitoring_addr,
            debug: debug(variables, self.profile)?,
            ctrlz: control(&self.ctrlz_address, self.ctrlz_port)?,
            log_scopes,
            shown_variables: BTreeSet::new(),
            pod: text(variables, "POD_NAME").unwrap_or_default().into(),
            files,
            connections: connections::limits(variable, files)?,
            shutdown: self.shutdown_duration,
            build: Build {
                version: env!("NAVARCH_VERSION"),
                revision: env!("NAVARCH_COMMIT"),
            },
        })
    }

    /// Unsets pilot-discovery's paths that are set to nothing, which are unset for it as well.
    fn unset_empty_paths(&mut self) {
        for path in [
            &mut self.config_dir,
            &mut self.kubeconfig,
            &mut self.mesh_config,
            &mut self.networks_config,
            &mut self.tls_cert_file,
            &mut self.tls_key_file,
            &mut self.ca_cert_file,
        ] {
            if path
                .as_ref()
                .is_some_and(|path| path.as_os_str().is_empty())
            {
                *path = None;
            }
        }
    }

    /// The settings of remote clusters from flags.
    fn remotes(&self) -> RemotesConfig {
        RemotesConfig {
            namespace: self
                .cluster_registries_namespace
                .clone()
                .filter(|name| !name.is_empty()),
            idle_timeout: self.kubernetes_idle_timeout,
            rate: rate(self.kubernetes_api_qps, self.kubernetes_api_burst),
            ..RemotesConfig::default()
        }
    }

    /// Applies flags about the control plane's location and the names of clusters.
    fn place(&self, settings: &mut Settings) {
        settings.domain_suffix.clone_from(&self.domain);
        if let Some(cluster) = &self.cluster_id {
            settings.cluster_id = ClusterId::new(cluster);
        }
        if let Some(namespace) = &self.namespace {
            settings.system_namespace = navarch_api::names::Namespace::new(namespace);
        }
        if let Some(revision) = &self.revision {
            settings.clusters.revision.clone_from(revision);
        }
        settings.clusters.aliases = aliases(&self.cluster_aliases);
    }
}

/// Logs one warning about ignored settings, if there are any.
fn warn_ignored(what: &str, names: &[String]) {
    if !names.is_empty() {
        tracing::warn!(names = names.join(", "), "{what}");
    }
}

/// Logs the variables of istiod that are set but have no effect.
fn warn_ignored_variables(variables: &Variables) {
    let ignored = variables.ignored().into_iter().map(str::to_owned);
    let (of_caches, others): (Vec<String>, Vec<String>) =
        ignored.partition(|name| OF_CACHES.contains(&name.as_str()));

    warn_ignored(
        "environment variables of istiod's caches have no effect: a result is kept exactly as long as \
         what it was computed from, so there is no cache to switch off, to bound or to clear",
        &of_caches,
    );
    warn_ignored(
        "environment variables of istiod that have no effect",
        &others,
    );
}

/// Logs what a compliance policy does not do, and which flags it overrides.
fn warn_compliance(named: &str, tls: &TlsRules) {
    cryptography::warn_unknown(named);

    let policy = cryptography::policy();
    if policy != CompliancePolicy::None && !tls.is_default() {
        tracing::warn!("COMPLIANCE_POLICY overrides --tls-min-version and --tls-cipher-suites");
    }
    tracing::info!(
        ?policy,
        fips_module = cryptography::is_fips(),
        "cryptography is that of aws-lc-rs"
    );
}
