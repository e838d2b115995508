//! `ProxyConfig` of mesh config: the settings with which one proxy starts and runs.

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

/// The settings of a proxy (`mesh/v1alpha1/proxy.proto`). `Default` is the empty message; the defaults of unset fields are
/// [`ProxyConfig::istio_defaults`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// The directory for files that the agent writes.
    pub config_path: String,
    /// The proxy's binary.
    pub binary_path: String,
    /// The name of the proxy's service. Mutually exclusive with `tracing_service_name`.
    pub service_cluster: Option<String>,
    /// The form of the service's name in traces. Mutually exclusive with `service_cluster`.
    pub tracing_service_name: Option<TracingServiceName>,
    /// Drain time of removed listeners.
    pub drain_duration: Option<Duration>,
    /// The address of the control plane, `host:port`.
    pub discovery_address: String,
    /// Obsolete: xDS is pushed.
    pub discovery_refresh_delay: Option<Duration>,
    /// Superseded by `tracing`.
    pub zipkin_address: String,
    /// The address of statsd for metrics over UDP, `host:port`.
    pub statsd_udp_address: String,
    /// Superseded by `envoy_metrics_service`.
    pub envoy_metrics_service_address: String,
    /// The port of the proxy's admin interface.
    pub proxy_admin_port: i32,
    /// Obsolete: the zone is taken from the node.
    pub availability_zone: String,
    /// How proxy and control plane authenticate each other.
    pub control_plane_auth_policy: AuthenticationPolicy,
    /// A bootstrap file that is used unchanged.
    pub custom_config_file: String,
    /// The maximum length of a metric's name.
    pub stat_name_length: i32,
    /// Worker threads; 0 is one per core, `None` is by the CPU limit.
    pub concurrency: Option<i32>,
    /// The template of the bootstrap file.
    pub proxy_bootstrap_template_path: String,
    /// How traffic is redirected to the proxy.
    pub interception_mode: InboundInterceptionMode,
    /// Traces.
    pub tracing: Option<Tracing>,
    /// Obsolete: certificates always come over SDS.
    pub sds: Option<Sds>,
    /// A service for access logs.
    pub envoy_access_log_service: Option<RemoteService>,
    /// A service for metrics.
    pub envoy_metrics_service: Option<RemoteService>,
    /// Additional environment variables of the proxy; names with `ISTIO_META_` become metadata of its node.
    pub proxy_metadata: BTreeMap<String, String>,
    /// Runtime settings of Envoy.
    pub runtime_values: BTreeMap<String, String>,
    /// The agent's port for health and metrics.
    pub status_port: i32,
    /// Names of additional tags of metrics.
    pub extra_stat_tags: Vec<String>,
    /// The proxies between clients and the gateway.
    pub gateway_topology: Option<Topology>,
    /// Drain time of connections when the proxy terminates.
    pub termination_drain_duration: Option<Duration>,
    /// The id of the mesh.
    pub mesh_id: String,
    /// How the application is probed, outside Kubernetes.
    pub readiness_probe: Option<ReadinessProbe>,
    /// Metrics to keep in addition to Istio's defaults.
    pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
    /// Whether the application waits for the proxy.
    pub hold_application_until_proxy_starts: Option<bool>,
    /// Additional root certificates that the proxy trusts, as PEM.
    pub ca_certificates_pem: Vec<String>,
    /// The proxy's image.
    pub image: Option<ProxyImage>,
    /// Hardware that handles private keys.
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
    /// The form of a service's name in traces.
    TracingServiceName {
        /// The label `app` and the namespace.
        AppLabelAndNamespace = 0, "APP_LABEL_AND_NAMESPACE";
        /// The canonical name.
        CanonicalNameOnly = 1, "CANONICAL_NAME_ONLY";
        /// The canonical name and the namespace.
        CanonicalNameAndNamespace = 2, "CANONICAL_NAME_AND_NAMESPACE";
    }
}

wire_enum! {
    /// How proxy and control plane authenticate each other.
    AuthenticationPolicy {
        /// No authentication.
        None = 0, "NONE";
        /// Mutual TLS.
        MutualTls = 1, "MUTUAL_TLS";
        /// Inherits the policy; invalid here.
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
        /// Not redirected: the application connects to the proxy.
        None = 2, "NONE";
    }
}

/// Former settings for certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sds {
    /// Whether certificates came over SDS.
    pub enabled: bool,
    /// The file of the token that authenticated the pod.
    pub k8s_sa_jwt_path: String,
}

/// A gRPC service that a proxy sends data to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteService {
    /// `host:port`.
    pub address: String,
    /// TLS settings for the service.
    pub tls_settings: Option<ClientTlsSettings>,
    /// TCP keepalive probes to the service.
    pub tcp_keepalive: Option<TcpKeepalive>,
}

/// The proxies between clients and a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// Number of proxies in front whose `X-Forwarded-For` is trusted.
    pub num_trusted_proxies: u32,
    /// The handling of `X-Forwarded-Client-Cert`.
    pub forward_client_cert_details: ForwardClientCertDetails,
    /// Expects the PROXY protocol from clients.
    pub proxy_protocol: Option<ProxyProtocolConfiguration>,
}

/// The PROXY protocol; has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyProtocolConfiguration {}

wire_enum! {
    /// The handling of `X-Forwarded-Client-Cert`.
    ForwardClientCertDetails {
        /// The default of the kind of proxy.
        Undefined = 0, "UNDEFINED";
        /// It is removed.
        Sanitize = 1, "SANITIZE";
        /// It is forwarded if the client presented a certificate.
        ForwardOnly = 2, "FORWARD_ONLY";
        /// As `FORWARD_ONLY`, with the client's certificate appended.
        AppendForward = 3, "APPEND_FORWARD";
        /// It is replaced by the client's certificate.
        SanitizeSet = 4, "SANITIZE_SET";
        /// It is always forwarded.
        AlwaysForwardOnly = 5, "ALWAYS_FORWARD_ONLY";
    }
}

/// Metrics to keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyStatsMatcher {
    /// By prefix of the name.
    pub inclusion_prefixes: Vec<String>,
    /// By suffix of the name.
    pub inclusion_suffixes: Vec<String>,
    /// By regular expression on the name.
    pub inclusion_regexps: Vec<String>,
}

/// The image of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyImage {
    /// The variant, such as `distroless`; empty is the default.
    pub image_type: String,
}
