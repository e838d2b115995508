//! `MeshConfig`: the settings of the whole mesh.

use serde::{Deserialize, Serialize};

use super::extension_provider::ExtensionProvider;
use super::label_selector::LabelSelector;
use super::proxy_config::ProxyConfig;
use super::service_entry_visibility::ServiceEntryVisibility;
use crate::duration::Duration;
use crate::istio::wire_enum::wire_enum;
use crate::istio::{
    ClientTlsSettings, ConnectionPoolSettings, HttpRetry, LocalityLoadBalancerSetting,
    OutlierDetection, TcpKeepalive, ZoneAwareLoadBalancerSetting,
};

/// The settings of the mesh (`mesh/v1alpha1/config.proto`). `Default` is the empty message; the
/// defaults of unset fields are [`MeshConfig::istio_defaults`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshConfig {
    /// The port of sidecars for outbound traffic.
    pub proxy_listen_port: i32,
    /// The port of sidecars for inbound traffic.
    pub proxy_inbound_listen_port: i32,
    /// The port of an HTTP proxy on each sidecar; 0 disables it.
    pub proxy_http_port: i32,
    /// Timeout for connections to endpoints.
    pub connect_timeout: Option<Duration>,
    /// Idle timeout of HBONE connections.
    pub hbone_idle_timeout: Option<Duration>,
    /// How long a proxy waits for the first bytes, which identify the protocol; zero is unlimited.
    pub protocol_detection_timeout: Option<Duration>,
    /// TCP keepalive probes to endpoints.
    pub tcp_keepalive: Option<TcpKeepalive>,
    /// The class of the `Ingress` objects that are served.
    pub ingress_class: String,
    /// The Service of the gateway that serves `Ingress` objects.
    pub ingress_service: String,
    /// Which `Ingress` objects are served.
    pub ingress_controller_mode: IngressControllerMode,
    /// The value of the `istio` label of the gateway that serves `Ingress` objects.
    pub ingress_selector: String,
    /// Whether proxies trace requests.
    pub enable_tracing: bool,
    /// The file of access logs; empty writes none.
    pub access_log_file: String,
    /// The format of access logs; empty is Istio's default.
    pub access_log_format: String,
    /// How access log entries are encoded.
    pub access_log_encoding: AccessLogEncoding,
    /// Whether access logs are sent to the access log service of the proxy's configuration.
    pub enable_envoy_access_log_service: bool,
    /// Whether listeners write no access log of their own.
    pub disable_envoy_listener_log: bool,
    /// The settings of proxies, unless a more specific setting overrides them.
    pub default_config: ProxyConfig,
    /// The handling of traffic to unknown hosts.
    pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
    /// The destination of inbound traffic on an unknown port.
    pub inbound_traffic_policy: Option<InboundTrafficPolicy>,
    /// The sources of configuration; empty reads the Kubernetes API.
    pub config_sources: Vec<ConfigSource>,
    /// Whether clients use mutual TLS to every endpoint that supports it.
    pub enable_auto_mtls: Option<bool>,
    /// The trust domain of the mesh's identities.
    pub trust_domain: String,
    /// Trust domains that are equivalent to it.
    pub trust_domain_aliases: Vec<String>,
    /// Additional root certificates that the mesh trusts.
    pub ca_certificates: Vec<CertificateData>,
    /// The default visibility of services.
    pub default_service_export_to: Vec<String>,
    /// The default visibility of VirtualServices.
    pub default_virtual_service_export_to: Vec<String>,
    /// The default visibility of DestinationRules.
    pub default_destination_rule_export_to: Vec<String>,
    /// The namespace whose objects apply to all namespaces.
    pub root_namespace: String,
    /// Locality preferences.
    pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    /// Zone preferences; takes precedence over `locality_lb_setting`.
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    /// The delay before a proxy resolves a DNS name again after a failure.
    pub dns_refresh_rate: Option<Duration>,
    /// Whether HTTP/1.1 connections between proxies are upgraded to HTTP/2.
    pub h2_upgrade_policy: H2UpgradePolicy,
    /// Pattern of the statistics names of inbound clusters.
    pub inbound_cluster_stat_name: String,
    /// Pattern of the statistics names of outbound clusters.
    pub outbound_cluster_stat_name: String,
    /// Certificates that earlier control planes issued. Ignored.
    pub certificates: Vec<Certificate>,
    /// Settings of services by host.
    pub service_settings: Vec<ServiceSettings>,
    /// Which services of ambient mode are visible outside their cluster: those that an entry with
    /// `GLOBAL` selects.
    pub service_scope_configs: Vec<ServiceScopeConfigs>,
    /// Whether agents serve the application's metrics together with the proxy's.
    pub enable_prometheus_merge: Option<bool>,
    /// Deprecated: a `DestinationRule` configures the verification of server certificates.
    pub verify_certificate_at_client: Option<bool>,
    /// An external CA that signs for the mesh. Ignored, as istiod does.
    pub ca: Option<Ca>,
    /// Services for authorization, traces, metrics and logs, by name.
    pub extension_providers: Vec<ExtensionProvider>,
    /// The default providers, unless a `Telemetry` sets others.
    pub default_providers: DefaultProviders,
    /// The namespaces that are watched; empty is all.
    pub discovery_selectors: Vec<LabelSelector>,
    /// How proxies normalize the paths of requests.
    pub path_normalization: Option<ProxyPathNormalization>,
    /// The default retry policy of requests.
    pub default_http_retry_policy: Option<HttpRetry>,
    /// The default retry policy of a sidecar for requests to its own application.
    pub default_inbound_http_retry_policy: Option<HttpRetry>,
    /// TLS settings between proxies of the mesh.
    #[serde(rename = "meshMTLS")]
    pub mesh_mtls: Option<TlsConfig>,
    /// TLS settings of all other connections.
    pub tls_defaults: Option<TlsConfig>,
    /// The defaults for unset fields of a DestinationRule.
    pub default_traffic_policy: Option<DefaultTrafficPolicy>,
    /// Limits which proxies receive ServiceEntries, whatever their `exportTo`; `None` is `PUBLIC`
    /// for all.
    pub service_entry_visibility: Option<ServiceEntryVisibility>,
}

wire_enum! {
    /// Which `Ingress` objects are served.
    IngressControllerMode {
        /// As the installation configures it.
        Unspecified = 0, "UNSPECIFIED";
        /// No objects.
        Off = 1, "OFF";
        /// Objects of Istio's class, and those without a class.
        Default = 2, "DEFAULT";
        /// Objects of Istio's class only.
        Strict = 3, "STRICT";
    }
}

wire_enum! {
    /// How access log entries are encoded.
    AccessLogEncoding {
        /// A line of text.
        Text = 0, "TEXT";
        /// A JSON object.
        Json = 1, "JSON";
    }
}

wire_enum! {
    /// Whether HTTP/1.1 connections between proxies are upgraded to HTTP/2.
    H2UpgradePolicy {
        /// Connections are not upgraded.
        DoNotUpgrade = 0, "DO_NOT_UPGRADE";
        /// Connections are upgraded.
        Upgrade = 1, "UPGRADE";
    }
}

/// The handling of traffic to unknown hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutboundTrafficPolicy {
    /// Whether the traffic is forwarded.
    pub mode: OutboundTrafficPolicyMode,
    /// TLS settings for such hosts; for `ALLOW_ANY_DYNAMIC_DNS` through an egress gateway.
    pub tls: Option<ClientTlsSettings>,
}

wire_enum! {
    /// Whether traffic to unknown hosts is forwarded.
    OutboundTrafficPolicyMode {
        /// Traffic to unknown hosts is dropped.
        RegistryOnly = 0, "REGISTRY_ONLY";
        /// Traffic is forwarded to its original destination address.
        AllowAny = 1, "ALLOW_ANY";
        /// Traffic is forwarded; the proxy resolves the host from HTTP or SNI.
        AllowAnyDynamicDns = 3, "ALLOW_ANY_DYNAMIC_DNS";
    }
}

/// The destination of inbound traffic on unknown ports of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InboundTrafficPolicy {
    /// Whether traffic goes to the original destination address or to localhost.
    pub mode: InboundTrafficPolicyMode,
}

wire_enum! {
    /// The destination of inbound traffic on unknown ports of a pod.
    InboundTrafficPolicyMode {
        /// The original destination address.
        Passthrough = 0, "PASSTHROUGH";
        /// 127.0.0.1.
        Localhost = 1, "LOCALHOST";
    }
}

/// An entry of `configSources`: from where the control plane reads Istio's objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSource {
    /// `fs:///path` for files, `xds://host:port` for an xDS server, `k8s://` for the Kubernetes
    /// API.
    pub address: String,
    /// TLS settings for the server.
    pub tls_settings: Option<ClientTlsSettings>,
    /// The requested resources; empty is all.
    pub subscribed_resources: Vec<Resource>,
}

wire_enum! {
    /// Resources that a configuration source can provide.
    Resource {
        /// Only services and their endpoints.
        ServiceRegistry = 0, "SERVICE_REGISTRY";
    }
}

/// A root certificate that the mesh trusts. One of `pem` and `spiffe_bundle_url` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateData {
    /// One or more CA certificates in PEM; takes precedence over `spiffe_bundle_url`.
    pub pem: Option<String>,
    /// HTTPS endpoint of a SPIFFE bundle with the CA certificates; the control plane fetches it
    /// periodically.
    pub spiffe_bundle_url: Option<String>,
    /// The Kubernetes signers whose certificates it verifies.
    pub cert_signers: Vec<String>,
    /// Their identities are accepted, too, besides those of `trustDomain` and its aliases.
    pub trust_domains: Vec<String>,
}

/// A certificate that earlier control planes issued.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Certificate {
    /// Secret that received certificate and key; empty wrote them to a directory.
    pub secret_name: String,
    /// Subject alternative names of the certificate, such as `galley.istio-system.svc`.
    pub dns_names: Vec<String>,
}

/// An entry of `serviceSettings`: makes services local to their cluster, or exempts them from
/// Istio's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSettings {
    /// `None` has the same effect as `clusterLocal: false`.
    pub settings: Option<Settings>,
    /// The hosts that the settings apply to: exact, or with a leading `*`.
    pub hosts: Vec<String>,
}

/// The settings of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Whether clients use only endpoints of their own cluster.
    pub cluster_local: bool,
}

/// Which services of ambient mode are visible outside their cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceScopeConfigs {
    /// The namespaces of the services; `None` is all.
    pub namespace_selector: Option<LabelSelector>,
    /// The services; `None` is all.
    pub services_selector: Option<LabelSelector>,
    /// `LOCAL` if unset, which has no effect: services are local unless an entry with `GLOBAL`
    /// selects them.
    pub scope: ServiceScope,
}

wire_enum! {
    /// Whether endpoints of services in ambient mode are exposed to other clusters.
    ServiceScope {
        /// The service is visible in its own cluster only.
        Local = 0, "LOCAL";
        /// The service is visible in all clusters of the mesh.
        Global = 1, "GLOBAL";
    }
}

/// An external CA that signs for the mesh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ca {
    /// The address of the CA, `host:port`.
    pub address: String,
    /// TLS settings for the connection to the CA.
    pub tls_settings: Option<ClientTlsSettings>,
    /// Limit for the CA to answer a CSR that istiod forwards; istiod's default is 10 s.
    pub request_timeout: Option<Duration>,
    /// Whether the control plane, not the proxies, sends the requests to it.
    pub istiod_side: bool,
}

/// The default providers by name, unless a `Telemetry` sets others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultProviders {
    /// Providers for traces.
    pub tracing: Vec<String>,
    /// Providers for metrics, such as `prometheus`; if empty, only a `Telemetry` enables Istio's
    /// metrics.
    pub metrics: Vec<String>,
    /// Providers for access logs.
    pub access_logging: Vec<String>,
}

/// How proxies normalize the paths of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyPathNormalization {
    /// The degree of normalization.
    pub normalization: NormalizationType,
}

wire_enum! {
    /// The degrees of path normalization.
    NormalizationType {
        /// The same as `BASE`.
        Default = 0, "DEFAULT";
        /// Paths are not changed.
        None = 1, "NONE";
        /// Normalizes according to RFC 3986, and converts backslashes to slashes.
        Base = 2, "BASE";
        /// Like `BASE`, and merges adjacent slashes.
        MergeSlashes = 3, "MERGE_SLASHES";
        /// Like `MERGE_SLASHES`, after decoding escaped slashes and backslashes.
        DecodeAndMergeSlashes = 4, "DECODE_AND_MERGE_SLASHES";
    }
}

/// TLS settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfig {
    /// Handshakes with lower versions fail; `TLS_AUTO` is TLS 1.2.
    pub min_protocol_version: TlsProtocol,
    /// The curves in order of preference; empty is Envoy's default.
    pub ecdh_curves: Vec<String>,
    /// The cipher suites; empty is Istio's default.
    pub cipher_suites: Vec<String>,
}

wire_enum! {
    /// Versions of TLS.
    TlsProtocol {
        /// Istio's default.
        Auto = 0, "TLS_AUTO";
        /// TLS 1.2.
        V1_2 = 1, "TLSV1_2";
        /// TLS 1.3.
        V1_3 = 2, "TLSV1_3";
    }
}

/// The defaults for unset fields of a DestinationRule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultTrafficPolicy {
    /// Limits on connections and requests.
    pub connection_pool: Option<ConnectionPoolSettings>,
    /// When failing endpoints are ejected.
    pub outlier_detection: Option<OutlierDetection>,
}
