//! The agent's settings, from pilot-agent's variables and flags.

use std::path::PathBuf;
use std::time::Duration;

use super::envoy_features::Features;
use super::variables::Variables;
use crate::bootstrap;
use navarch_base::version::ISTIO_VERSION;

/// Settings outside the effective proxy config.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate variable of pilot-agent"
)]
pub struct Settings {
    /// The reported Istio version of the proxy.
    pub istio_version: String,
    /// `ENVOY_STATUS_PORT`: the port of Envoy's readiness listener.
    pub envoy_status_port: u16,
    /// `ENVOY_PROMETHEUS_PORT`: the port of Envoy's metrics.
    pub envoy_prometheus_port: u16,
    /// `ENVOY_SECURE_METRICS_PORT`: the port of Envoy's metrics over mTLS; 0 is off.
    pub secure_metrics_port: u16,
    /// `ENVOY_SECURE_MERGED_METRICS_PORT`: the port of all metrics over mTLS; 0 is off.
    pub secure_merged_metrics_port: u16,
    /// `--stsPort`: the port of the token service; 0 is off.
    pub sts_port: u16,
    /// `--profiling`: whether profiles of the agent are served.
    pub profiling: bool,
    /// `--tokenManagerPlugin`: who exchanges tokens; chosen by other settings if empty.
    pub token_manager_plugin: String,
    /// `MINIMUM_DRAIN_DURATION`: how long Envoy drains before connections are counted.
    pub minimum_drain: Duration,
    /// `EXIT_ON_ZERO_ACTIVE_CONNECTIONS`: whether draining ends when no connection is left.
    pub exit_on_zero_active_connections: bool,
    /// `PEER_METADATA_DISCOVERY`, if set.
    pub metadata_discovery: Option<bool>,
    /// `ENVOY_SKIP_DEPRECATED_LOGS`.
    pub skip_deprecated_logs: bool,
    /// `WORKLOAD_IDENTITY_SOCKET_FILE`: the name of the SDS socket.
    pub workload_identity_socket: String,
    /// `--outlierLogPath`.
    pub outlier_log_path: String,
    /// `GRPC_XDS_BOOTSTRAP`: the path of the bootstrap for proxyless gRPC; empty is off.
    pub grpc_bootstrap: PathBuf,
    /// `DISABLE_ENVOY`.
    pub disable_envoy: bool,
    /// `ISTIO_DELTA_XDS`.
    pub delta: bool,
    /// `ISTIO_DUAL_STACK`.
    pub dual_stack: bool,
    /// `ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL`.
    pub status_proxy_protocol: bool,
    /// `HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED`.
    pub strip_fragment: bool,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// `HOST_IP`: replaces `$(HOST_IP)` in tracer addresses.
    pub host_ip: String,
    /// `OUTPUT_CERTS`: the directory for key and certificates; empty is off.
    pub output_certs: String,
    /// `NAVARCH_CERTIFICATE_FILES`: files with which Envoy is started, and whose changes start its
    /// next epoch. If it is empty, Envoy runs without hot restart.
    pub certificate_files: Vec<PathBuf>,
    /// `NAVARCH_CERTIFICATE_RELOAD_DELAY`: how long after a change the files are read; the first
    /// agents' `minDelay`.
    pub certificate_reload_delay: Duration,
    /// `NAVARCH_PROXY_UPGRADE`: whether Envoy is replaced in place, for another program, a changed
    /// bootstrap and after a crash.
    pub replaces_in_place: bool,
    /// `ISTIO_BOOTSTRAP_OVERRIDE`: a file that overrides parts of the bootstrap.
    pub bootstrap_override: String,
    /// `ISTIO_BOOTSTRAP`: a template that replaces the built-in bootstrap.
    pub bootstrap_template: String,
    /// `ISTIO_ENVOY_ENABLE_CORE_DUMP`.
    pub core_dump: bool,
    /// `--log_as_json`.
    pub log_json: bool,
    /// `--proxyLogLevel`.
    pub log_level: String,
    /// `--proxyComponentLogLevel`.
    pub component_log_level: String,
}

impl Settings {
    /// Reads the variables. Flags, which override them, are not applied yet.
    #[must_use]
    pub fn read(variables: &Variables) -> Self {
        let port = |name: &str, default| variables.number(name, default);

        Self {
            istio_version: ISTIO_VERSION.to_owned(),
            envoy_status_port: port("ENVOY_STATUS_PORT", 15021),
            envoy_prometheus_port: port("ENVOY_PROMETHEUS_PORT", 15090),
            secure_metrics_port: port("ENVOY_SECURE_METRICS_PORT", 0),
            secure_merged_metrics_port: port("ENVOY_SECURE_MERGED_METRICS_PORT", 0),
            sts_port: 0,
            profiling: true,
            token_manager_plugin: String::new(),
            minimum_drain: variables.duration("MINIMUM_DRAIN_DURATION", Duration::from_secs(5)),
            exit_on_zero_active_connections: variables
                .flag("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", false),
            metadata_discovery: variables
                .get("PEER_METADATA_DISCOVERY")
                .map(|_| variables.flag("PEER_METADATA_DISCOVERY", false)),
            skip_deprecated_logs: variables.flag("ENVOY_SKIP_DEPRECATED_LOGS", true),
            workload_identity_socket: variables.text_or("WORKLOAD_IDENTITY_SOCKET_FILE", "socket"),
            outlier_log_path: String::new(),
            grpc_bootstrap: variables
                .text_or("GRPC_XDS_BOOTSTRAP", "etc/istio/proxy/grpc-bootstrap.json")
                .into(),
            disable_envoy: variables.flag("DISABLE_ENVOY", false),
            delta: variables.flag("ISTIO_DELTA_XDS", true),
            dual_stack: variables.flag("ISTIO_DUAL_STACK", false),
            status_proxy_protocol: variables.flag("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", false),
            strip_fragment: variables
                .flag("HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED", true),
            compliance_policy: variables.text_or("COMPLIANCE_POLICY", ""),
            host_ip: variables.text_or("HOST_IP", ""),
            output_certs: variables.text_or("OUTPUT_CERTS", ""),
            certificate_files: Self::paths(variables.text("NAVARCH_CERTIFICATE_FILES")),
            certificate_reload_delay: variables
                .duration("NAVARCH_CERTIFICATE_RELOAD_DELAY", Duration::from_secs(10)),
            replaces_in_place: variables.flag("NAVARCH_PROXY_UPGRADE", false),
            bootstrap_override: variables.text_or("ISTIO_BOOTSTRAP_OVERRIDE", ""),
            bootstrap_template: variables.text_or("ISTIO_BOOTSTRAP", ""),
            core_dump: variables.flag("ISTIO_ENVOY_ENABLE_CORE_DUMP", false),
            log_json: false,
            log_level: "warning".to_owned(),
            component_log_level: String::new(),
        }
    }

    /// The paths of a list with commas.
    pub(crate) fn paths(list: &str) -> Vec<PathBuf> {
        list.split(',')
            .map(str::trim)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .collect()
    }

    /// Whether one Envoy can take over from another by hot restart.
    #[must_use]
    pub fn uses_hot_restart(&self) -> bool {
        self.replaces_in_place || !self.certificate_files.is_empty()
    }

    /// What the bootstrap depends on, for an Envoy with these features.
    #[must_use]
    pub fn for_bootstrap(&self, features: Features) -> bootstrap::Settings {
        bootstrap::Settings {
            envoy_status_port: self.envoy_status_port,
            envoy_prometheus_port: self.envoy_prometheus_port,
            secure_metrics_port: self.secure_metrics_port,
            secure_merged_metrics_port: self.secure_merged_metrics_port,
            status_proxy_protocol: self.status_proxy_protocol,
            workload_identity_socket: self.workload_identity_socket.clone(),
            exit_on_zero_active_connections: self.exit_on_zero_active_connections,
            outlier_log_path: self.outlier_log_path.clone(),
            delta: self.delta,
            dual_stack: self.dual_stack,
            strip_fragment: self.strip_fragment,
            compliance_policy: self.compliance_policy.clone(),
            host_ip: self.host_ip.clone(),
            log_json: self.log_json,
            workload_discovery: features.workload_discovery,
        }
    }
}
