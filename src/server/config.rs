//! The configuration of the control plane.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{
    ConnectionLimits, ListenAddress, RecordConfig, RemotesConfig, SecurityConfig, SourcesConfig,
    WebhookConfig, WritingConfig,
};
use crate::admin::{Build, DebugSwitches, LogScopes};
use navarch_api::settings::Settings;
use navarch_push::worker::Debounce;
use navarch_rollout::QueryNamespaces;
use navarch_source::KeyConfig;
use navarch_webhook::injector_source::InjectionSettings;
use navarch_xds::{Encodings, Limits};

/// The configuration from flags and environment.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings that determine what is derived from the configuration.
    pub settings: Settings,
    /// How changes are debounced.
    pub debounce: Debounce,
    /// Limits per xDS client.
    pub limits: Limits,
    /// `NAVARCH_XDS_COMPRESSION`: the encodings that responses may be compressed with. Default both.
    pub encodings: Encodings,
    /// The memory budget of all xDS clients together, in bytes.
    pub client_memory: usize,
    /// `RESOLVE_HOSTNAME_GATEWAYS`: whether host names of gateways between networks are resolved by
    /// the control plane. Default true.
    pub resolves_gateways: bool,
    /// `ENABLE_XDS_API_GENERATOR_AUTH=false`: whether all clients may subscribe to Istio's objects
    /// over xDS.
    pub objects_for_all: bool,
    /// `NAVARCH_QUARANTINE`: whether objects that proxies reject are quarantined. Default true.
    pub quarantines: bool,
    /// `NAVARCH_PROMETHEUS_URL`: the Prometheus that decides whether a rollout may advance; `None`
    /// if there is none.
    pub prometheus: Option<String>,
    /// `NAVARCH_ROLLOUT_QUERY_NAMESPACES`: whose rollouts it may decide about.
    pub query_namespaces: QueryNamespaces,
    /// Where inputs and responses are recorded; `None` without a recording.
    pub record: Option<RecordConfig>,
    /// `OTEL_*`: how traces of changes are sent to a collector; `None` without traces.
    pub traces: Option<navarch_otlp::Config>,
    /// How the keys of token issuers are fetched.
    pub keys: KeyConfig,
    /// The sources of configuration and services.
    pub sources: SourcesConfig,
    /// Remote clusters.
    pub remotes: RemotesConfig,
    /// Plaintext xDS; if off, it is served on the port of readiness and debug pages.
    pub grpc: ListenAddress,
    /// xDS and certificates over TLS.
    pub secure: ListenAddress,
    /// Identities and certificates.
    pub security: SecurityConfig,
    /// Controllers that write to the cluster.
    pub writing: WritingConfig,
    /// Webhooks over TLS; if off, they are served on the port of readiness and debug pages.
    pub https: ListenAddress,
    /// Which webhook configurations in the API server are kept up to date, and how.
    pub webhooks: WebhookConfig,
    /// Whether pods are injected, and from which files and variables.
    pub injection: InjectionSettings,
    /// Readiness and debug pages.
    pub http: ListenAddress,
    /// Metrics, version and debug pages; if off, they are served on the port of readiness and debug
    /// pages.
    pub monitoring: ListenAddress,
    /// The enabled debug pages.
    pub debug: DebugSwitches,
    /// ControlZ.
    pub ctrlz: ListenAddress,
    /// The log levels, by scope.
    pub log_scopes: LogScopes,
    /// The environment variables whose values ControlZ shows.
    pub shown_variables: BTreeSet<String>,
    /// `POD_NAME`: the name of this replica; empty if unset.
    pub pod: Arc<str>,
    /// Maximum number of open files and connections of the process (`RLIMIT_NOFILE`).
    pub files: usize,
    /// Connection limits per port.
    pub connections: ConnectionLimits,
    /// Grace period for proxies at shutdown.
    pub shutdown: Duration,
    /// The version stamp.
    pub build: Build,
}
