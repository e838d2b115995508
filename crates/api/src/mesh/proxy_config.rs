//! `ProxyConfig` of mesh config: the settings of one proxy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::connection_settings::ConnectionSettings;
use super::private_key_provider::PrivateKeyProvider;
use super::proxy_headers::ProxyHeaders;
use super::readiness_probe::ReadinessProbe;
use super::tracing::Tracing;
use crate::duration::Duration;
use crate::istio::wire_enum::wire_enum;
use crate::istio::{ClientTlsSettings, TcpKeepalive};

/// The settings of a proxy (`mesh/v1alpha1/proxy.proto`). `Default` is the empty message; the
/// defaults of unset fields are [`ProxyConfig::istio_defaults`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// The directory for files that the agent generates.
    pub config_path: String,
    /// The path of Envoy's binary.
    pub binary_path: String,
    /// The service name of the proxy. Mutually exclusive with `tracing_service_name`.
    pub service_cluster: Option<String>,
    /// The format of the service name in traces. Mutually exclusive with `service_cluster`.
    pub tracing_service_name: Option<TracingServiceName>,
    /// Drain time of removed listeners.
    pub drain_duration: Option<Duration>,
    /// The address of the control plane, `host:port`.
    pub discovery_address: String,
    /// Deprecated and unused: xDS is pushed.
    pub discovery_refresh_delay: Option<Duration>,
    /// Deprecated: replaced by `tracing`.
    pub zipkin_address: String,
    /// The address of statsd for metrics over UDP, `host:port`.
    pub statsd_udp_address: String,
    /// Deprecated: replaced by `envoy_metrics_service`.
    pub envoy_metrics_service_address: String,
    /// The port of the proxy's admin interface.
    pub proxy_admin_port: i32,
    /// The zone of the proxy where neither labels nor the cloud platform have one.
    pub availability_zone: String,
    /// How proxy and control plane authenticate each other.
    pub control_plane_auth_policy: AuthenticationPolicy,
    /// The path of a complete bootstrap file, which replaces the generated one.
    pub custom_config_file: String,
    /// The maximum length of metric names.
    pub stat_name_length: i32,
    /// Number of worker threads; 0 is one per core, `None` depends on the CPU limit.
    pub concurrency: Option<i32>,
    /// The path of a template for the bootstrap file.
    pub proxy_bootstrap_template_path: String,
    /// How traffic is redirected to the proxy.
    pub interception_mode: InboundInterceptionMode,
    /// Tracing settings.
    pub tracing: Option<Tracing>,
    /// Deprecated and unused: certificates always come from SDS.
    pub sds: Option<Sds>,
    /// The service that receives access logs (ALS).
    pub envoy_access_log_service: Option<RemoteService>,
    /// The service that receives metrics.
    pub envoy_metrics_service: Option<RemoteService>,
    /// Additional environment variables of the proxy; those with the prefix `ISTIO_META_` become
    /// node metadata.
    pub proxy_metadata: BTreeMap<String, String>,
    /// Runtime settings of Envoy.
    pub runtime_values: BTreeMap<String, String>,
    /// The agent's port for health and metrics.
    pub status_port: i32,
    /// Names of additional tags of metrics.
    pub extra_stat_tags: Vec<String>,
    /// The number of trusted proxies in front of the gateway, and the handling of their headers.
    pub gateway_topology: Option<Topology>,
    /// Drain time of connections when the proxy terminates.
    pub termination_drain_duration: Option<Duration>,
    /// Distinguishes meshes whose telemetry is mixed; the same for all control planes of a mesh.
    pub mesh_id: String,
    /// The readiness probe of an application outside Kubernetes.
    pub readiness_probe: Option<ReadinessProbe>,
    /// Metrics to keep in addition to Istio's defaults.
    pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
    /// Whether the application's container starts after the proxy is ready.
    pub hold_application_until_proxy_starts: Option<bool>,
    /// Additional root certificates that the proxy trusts, as PEM.
    pub ca_certificates_pem: Vec<String>,
    /// Variant that the injector uses; the annotation `sidecar.istio.io/proxyImageType` takes
    /// precedence.
    pub image: Option<ProxyImage>,
    /// Hardware acceleration for private keys.
    pub private_key_provider: Option<PrivateKeyProvider>,
    /// Headers that the proxy adds, changes and removes.
    pub proxy_headers: Option<ProxyHeaders>,
    /// The flush interval of access log files.
    pub file_flush_interval: Option<Duration>,
    /// The size of the buffer of an access log file, in KiB; 0 is Envoy's default of 64.
    pub file_flush_min_size_kb: u32,
    /// Whether metrics are compressed when they are fetched.
    pub stats_compression: Option<bool>,
    /// Limits on connections and requests.
    pub connection_settings: Option<ConnectionSettings>,
}

wire_enum! {
    /// The format of the service name in traces.
    TracingServiceName {
        /// The value of the label `app`, and the namespace.
        AppLabelAndNamespace = 0, "APP_LABEL_AND_NAMESPACE";
        /// The canonical name of the service.
        CanonicalNameOnly = 1, "CANONICAL_NAME_ONLY";
        /// The canonical name of the service, and the namespace.
        CanonicalNameAndNamespace = 2, "CANONICAL_NAME_AND_NAMESPACE";
    }
}

wire_enum! {
    /// How proxy and control plane authenticate each other.
    AuthenticationPolicy {
        /// No authentication.
        None = 0, "NONE";
        /// The default: TLS, with the mounted client certificate if there is one, and with the
        /// pod's token.
        MutualTls = 1, "MUTUAL_TLS";
        /// Inherits the parent's policy, which is invalid here.
        Inherit = 1000, "INHERIT";
    }
}

wire_enum! {
    /// How traffic is redirected to a proxy.
    InboundInterceptionMode {
        /// By `REDIRECT` of iptables; the application does not see the client's address.
        Redirect = 0, "REDIRECT";
        /// By `TPROXY` of iptables; the application sees the client's address.
        Tproxy = 1, "TPROXY";
        /// Traffic is not redirected: the application connects to the proxy.
        None = 2, "NONE";
    }
}

/// Deprecated settings for certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sds {
    /// Whether certificates came from SDS.
    pub enabled: bool,
    /// The file of the token that authenticated the pod.
    pub k8s_sa_jwt_path: String,
}

/// A gRPC service that a proxy sends data to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteService {
    /// The address of the service, `host:port`.
    pub address: String,
    /// Client TLS of the proxy; `None` is plain text, as is the mode `DISABLE`.
    pub tls_settings: Option<ClientTlsSettings>,
    /// TCP keepalive probes to the service.
    pub tcp_keepalive: Option<TcpKeepalive>,
}

/// The topology in front of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// Number of proxies in front of the gateway whose `X-Forwarded-For` is trusted.
    pub num_trusted_proxies: u32,
    /// The handling of `X-Forwarded-Client-Cert`.
    pub forward_client_cert_details: ForwardClientCertDetails,
    /// If set, clients must send the PROXY protocol header.
    pub proxy_protocol: Option<ProxyProtocolConfiguration>,
}

/// The PROXY protocol; has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyProtocolConfiguration {}

wire_enum! {
    /// The handling of `X-Forwarded-Client-Cert`.
    ForwardClientCertDetails {
        /// The default for this kind of proxy.
        Undefined = 0, "UNDEFINED";
        /// The header is removed.
        Sanitize = 1, "SANITIZE";
        /// The header is forwarded if the client presented a certificate.
        ForwardOnly = 2, "FORWARD_ONLY";
        /// Like `FORWARD_ONLY`, with the client's certificate appended.
        AppendForward = 3, "APPEND_FORWARD";
        /// The header is replaced by the client's certificate.
        SanitizeSet = 4, "SANITIZE_SET";
        /// The header is always forwarded.
        AlwaysForwardOnly = 5, "ALWAYS_FORWARD_ONLY";
    }
}

/// Selects metrics to keep, in addition to Istio's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyStatsMatcher {
    /// Prefixes of metric names.
    pub inclusion_prefixes: Vec<String>,
    /// Suffixes of metric names.
    pub inclusion_suffixes: Vec<String>,
    /// Regular expressions on metric names.
    pub inclusion_regexps: Vec<String>,
}

/// Which variant of the proxy's image is injected. Registry and tag are in the injector's values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyImage {
    /// The variant, such as `distroless`; empty is the default.
    pub image_type: String,
}
