//! `ProxyConfig` of mesh config: what one proxy is started and run with.

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

/// The settings of a proxy (`mesh/v1alpha1/proxy.proto`). `Default` is the empty message; what holds when nothing is
/// said is [`ProxyConfig::istio_defaults`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// The directory for files that the agent writes.
    pub config_path: String,
    /// The proxy's binary.
    pub binary_path: String,
    /// The name of the proxy's service. Not together with `tracing_service_name`.
    pub service_cluster: Option<String>,
    /// How the service is named in traces. Not together with `service_cluster`.
    pub tracing_service_name: Option<TracingServiceName>,
    /// How long listeners that go away are drained.
    pub drain_duration: Option<Duration>,
    /// Where the control plane is, `host:port`.
    pub discovery_address: String,
    /// Superseded: xDS is pushed.
    pub discovery_refresh_delay: Option<Duration>,
    /// Superseded by `tracing`.
    pub zipkin_address: String,
    /// Where statsd takes metrics over UDP, `host:port`.
    pub statsd_udp_address: String,
    /// Superseded by `envoy_metrics_service`.
    pub envoy_metrics_service_address: String,
    /// The port of the proxy's admin interface.
    pub proxy_admin_port: i32,
    /// Superseded: the zone is taken from the node.
    pub availability_zone: String,
    /// How proxy and control plane prove who they are.
    pub control_plane_auth_policy: AuthenticationPolicy,
    /// A bootstrap file to use as it is.
    pub custom_config_file: String,
    /// The longest name of a metric.
    pub stat_name_length: i32,
    /// Worker threads; 0 is one per core, `None` is by the CPU limit.
    pub concurrency: Option<i32>,
    /// The template of the bootstrap file.
    pub proxy_bootstrap_template_path: String,
    /// How traffic gets into the proxy.
    pub interception_mode: InboundInterceptionMode,
    /// Traces.
    pub tracing: Option<Tracing>,
    /// Superseded: certificates always come over SDS.
    pub sds: Option<Sds>,
    /// A service for access logs.
    pub envoy_access_log_service: Option<RemoteService>,
    /// A service for metrics.
    pub envoy_metrics_service: Option<RemoteService>,
    /// Further environment of the proxy; names with `ISTIO_META_` become metadata of its node.
    pub proxy_metadata: BTreeMap<String, String>,
    /// Runtime settings of Envoy.
    pub runtime_values: BTreeMap<String, String>,
    /// The agent's port for health and metrics.
    pub status_port: i32,
    /// Names of further tags of metrics.
    pub extra_stat_tags: Vec<String>,
    /// What stands between clients and the gateway.
    pub gateway_topology: Option<Topology>,
    /// How long connections are drained when the proxy ends.
    pub termination_drain_duration: Option<Duration>,
    /// The id of the mesh.
    pub mesh_id: String,
    /// How the application is probed, outside Kubernetes.
    pub readiness_probe: Option<ReadinessProbe>,
    /// Metrics to keep beside Istio's default choice.
    pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
    /// Whether the application waits for the proxy.
    pub hold_application_until_proxy_starts: Option<bool>,
    /// Further roots that the proxy trusts, as PEM.
    pub ca_certificates_pem: Vec<String>,
    /// The proxy's image.
    pub image: Option<ProxyImage>,
    /// Hardware for private keys.
    pub private_key_provider: Option<PrivateKeyProvider>,
    /// Headers that the proxy adds, changes and hides.
    pub proxy_headers: Option<ProxyHeaders>,
    /// How often access log files are written out.
    pub file_flush_interval: Option<Duration>,
    /// How much is gathered for an access log file before it is written out, in KiB; 0 is Envoy's 64.
    pub file_flush_min_size_kb: u32,
    /// Whether metrics are compressed when they are fetched.
    pub stats_compression: Option<bool>,
    /// Limits on connections and requests.
    pub connection_settings: Option<ConnectionSettings>,
}

wire_enum! {
    /// How a service is named in traces.
    TracingServiceName {
        /// By the label `app` and the namespace.
        AppLabelAndNamespace = 0, "APP_LABEL_AND_NAMESPACE";
        /// By its canonical name.
        CanonicalNameOnly = 1, "CANONICAL_NAME_ONLY";
        /// By its canonical name and the namespace.
        CanonicalNameAndNamespace = 2, "CANONICAL_NAME_AND_NAMESPACE";
    }
}

wire_enum! {
    /// How proxy and control plane prove who they are.
    AuthenticationPolicy {
        /// Not at all.
        None = 0, "NONE";
        /// By mutual TLS.
        MutualTls = 1, "MUTUAL_TLS";
        /// As something above says; not good here.
        Inherit = 1000, "INHERIT";
    }
}

wire_enum! {
    /// How traffic gets into a proxy.
    InboundInterceptionMode {
        /// By `REDIRECT` of iptables; the client's address is lost to the application.
        Redirect = 0, "REDIRECT";
        /// By `TPROXY` of iptables; the client's address is kept.
        Tproxy = 1, "TPROXY";
        /// By the application, which connects to the proxy.
        None = 2, "NONE";
    }
}

/// How certificates once came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sds {
    /// Whether they came over SDS.
    pub enabled: bool,
    /// The token that proved the pod.
    pub k8s_sa_jwt_path: String,
}

/// A gRPC service that a proxy sends data to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteService {
    /// `host:port`.
    pub address: String,
    /// TLS towards it.
    pub tls_settings: Option<ClientTlsSettings>,
    /// TCP keepalive probes towards it.
    pub tcp_keepalive: Option<TcpKeepalive>,
}

/// What stands between clients and a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// Number of proxies in front whose `X-Forwarded-For` is trusted.
    pub num_trusted_proxies: u32,
    /// What becomes of `X-Forwarded-Client-Cert`.
    pub forward_client_cert_details: ForwardClientCertDetails,
    /// Expects the PROXY protocol from clients.
    pub proxy_protocol: Option<ProxyProtocolConfiguration>,
}

/// The PROXY protocol; there is nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyProtocolConfiguration {}

wire_enum! {
    /// What becomes of `X-Forwarded-Client-Cert`.
    ForwardClientCertDetails {
        /// As the kind of proxy demands.
        Undefined = 0, "UNDEFINED";
        /// It is removed.
        Sanitize = 1, "SANITIZE";
        /// It goes on when the client has shown a certificate.
        ForwardOnly = 2, "FORWARD_ONLY";
        /// As `FORWARD_ONLY`, with the client's certificate appended.
        AppendForward = 3, "APPEND_FORWARD";
        /// It is replaced by the client's certificate.
        SanitizeSet = 4, "SANITIZE_SET";
        /// It always goes on.
        AlwaysForwardOnly = 5, "ALWAYS_FORWARD_ONLY";
    }
}

/// Metrics to keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyStatsMatcher {
    /// By the start of the name.
    pub inclusion_prefixes: Vec<String>,
    /// By the end of the name.
    pub inclusion_suffixes: Vec<String>,
    /// By expressions on the name.
    pub inclusion_regexps: Vec<String>,
}

/// The image of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyImage {
    /// The flavour, such as `distroless`; empty is the default one.
    pub image_type: String,
}
