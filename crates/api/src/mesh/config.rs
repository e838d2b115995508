//! `MeshConfig`: the settings that hold for the whole mesh.

use serde::{Deserialize, Serialize};

use super::extension_provider::ExtensionProvider;
use super::label_selector::LabelSelector;
use super::proxy_config::ProxyConfig;
use super::service_entry_visibility::ServiceEntryVisibility;
use crate::duration::Duration;
use crate::istio::wire_enum::wire_enum;
use crate::istio::{
    ClientTlsSettings, ConnectionPoolSettings, HttpRetry, LocalityLoadBalancerSetting, OutlierDetection, TcpKeepalive,
    ZoneAwareLoadBalancerSetting,
};

/// The settings of the mesh (`mesh/v1alpha1/config.proto`). `Default` is the empty message; what holds when nothing is
/// said is [`MeshConfig::istio_defaults`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshConfig {
    /// The port on which sidecars take traffic that leaves a pod.
    pub proxy_listen_port: i32,
    /// The port on which sidecars take traffic that enters a pod.
    pub proxy_inbound_listen_port: i32,
    /// The port of an HTTP proxy on each sidecar; 0 turns it off.
    pub proxy_http_port: i32,
    /// How long connecting to an endpoint may take.
    pub connect_timeout: Option<Duration>,
    /// How long an HBONE connection may be idle.
    pub hbone_idle_timeout: Option<Duration>,
    /// How long a proxy waits for the first bytes that tell the protocol; zero waits for ever.
    pub protocol_detection_timeout: Option<Duration>,
    /// TCP keepalive probes towards endpoints.
    pub tcp_keepalive: Option<TcpKeepalive>,
    /// The class of the `Ingress` objects that are served.
    pub ingress_class: String,
    /// The Service behind which `Ingress` objects are served.
    pub ingress_service: String,
    /// Which `Ingress` objects are served.
    pub ingress_controller_mode: IngressControllerMode,
    /// The value of the `istio` label of the gateway that serves `Ingress` objects.
    pub ingress_selector: String,
    /// Whether proxies trace requests.
    pub enable_tracing: bool,
    /// Where access logs go; empty writes none.
    pub access_log_file: String,
    /// The format of access logs; empty is Istio's own.
    pub access_log_format: String,
    /// How access log entries are encoded.
    pub access_log_encoding: AccessLogEncoding,
    /// Whether access logs go to the access log service of the proxy's configuration.
    pub enable_envoy_access_log_service: bool,
    /// Whether listeners write no access log of their own.
    pub disable_envoy_listener_log: bool,
    /// What proxies get unless something more exact says otherwise.
    pub default_config: ProxyConfig,
    /// What becomes of traffic to unknown hosts.
    pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
    /// Where traffic that enters a pod on an unknown port goes.
    pub inbound_traffic_policy: Option<InboundTrafficPolicy>,
    /// Where configuration comes from; empty reads the Kubernetes API.
    pub config_sources: Vec<ConfigSource>,
    /// Whether clients use mutual TLS towards every endpoint that can.
    pub enable_auto_mtls: Option<bool>,
    /// The trust domain of the mesh's identities.
    pub trust_domain: String,
    /// Trust domains that are held equal to it.
    pub trust_domain_aliases: Vec<String>,
    /// Further roots that the mesh trusts.
    pub ca_certificates: Vec<CertificateData>,
    /// To whom services are visible when they do not say.
    pub default_service_export_to: Vec<String>,
    /// To whom VirtualServices are visible when they do not say.
    pub default_virtual_service_export_to: Vec<String>,
    /// To whom DestinationRules are visible when they do not say.
    pub default_destination_rule_export_to: Vec<String>,
    /// The namespace whose objects hold for all namespaces.
    pub root_namespace: String,
    /// Which localities are preferred.
    pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    /// Which zones are preferred; wins over `locality_lb_setting`.
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    /// How long proxies wait before they resolve a DNS name again after a failure.
    pub dns_refresh_rate: Option<Duration>,
    /// Whether HTTP/1.1 connections between proxies become HTTP/2.
    pub h2_upgrade_policy: H2UpgradePolicy,
    /// Pattern of the names under which inbound clusters count.
    pub inbound_cluster_stat_name: String,
    /// Pattern of the names under which outbound clusters count.
    pub outbound_cluster_stat_name: String,
    /// Certificates that the control plane once issued; nothing reads them any more.
    pub certificates: Vec<Certificate>,
    /// Settings of services by host.
    pub service_settings: Vec<ServiceSettings>,
    /// Which services of ambient mode reach beyond their cluster: those that any of these with `GLOBAL` selects.
    pub service_scope_configs: Vec<ServiceScopeConfigs>,
    /// Whether agents serve the application's metrics together with the proxy's.
    pub enable_prometheus_merge: Option<bool>,
    /// Superseded: clients verify certificates by the rules of `DestinationRule`.
    pub verify_certificate_at_client: Option<bool>,
    /// An outer CA that signs for the mesh.
    pub ca: Option<Ca>,
    /// Services for authorization, traces, metrics and logs, by name.
    pub extension_providers: Vec<ExtensionProvider>,
    /// The providers that hold where no `Telemetry` says otherwise.
    pub default_providers: DefaultProviders,
    /// The namespaces that are watched at all; empty is every one.
    pub discovery_selectors: Vec<LabelSelector>,
    /// How proxies normalise the paths of requests.
    pub path_normalization: Option<ProxyPathNormalization>,
    /// When and how often requests are tried again by default.
    pub default_http_retry_policy: Option<HttpRetry>,
    /// When and how often a sidecar tries requests to its own application again.
    pub default_inbound_http_retry_policy: Option<HttpRetry>,
    /// TLS between proxies of the mesh.
    #[serde(rename = "meshMTLS")]
    pub mesh_mtls: Option<TlsConfig>,
    /// TLS everywhere else.
    pub tls_defaults: Option<TlsConfig>,
    /// What a DestinationRule inherits where it is silent.
    pub default_traffic_policy: Option<DefaultTrafficPolicy>,
    /// Who may see which ServiceEntries.
    pub service_entry_visibility: Option<ServiceEntryVisibility>,
}

wire_enum! {
    /// Which `Ingress` objects are served.
    IngressControllerMode {
        /// As the installation says.
        Unspecified = 0, "UNSPECIFIED";
        /// None.
        Off = 1, "OFF";
        /// Those of Istio's class and those without a class.
        Default = 2, "DEFAULT";
        /// Those of Istio's class.
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
    /// Whether HTTP/1.1 connections between proxies become HTTP/2.
    H2UpgradePolicy {
        /// They do not.
        DoNotUpgrade = 0, "DO_NOT_UPGRADE";
        /// They do.
        Upgrade = 1, "UPGRADE";
    }
}

/// What becomes of traffic to hosts that no service knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutboundTrafficPolicy {
    /// Whether it is let through.
    pub mode: OutboundTrafficPolicyMode,
    /// TLS towards such hosts; for `ALLOW_ANY_DYNAMIC_DNS` through an egress gateway.
    pub tls: Option<ClientTlsSettings>,
}

wire_enum! {
    /// Whether traffic to unknown hosts is let through.
    OutboundTrafficPolicyMode {
        /// It is dropped.
        RegistryOnly = 0, "REGISTRY_ONLY";
        /// It is let through to the address that the client chose.
        AllowAny = 1, "ALLOW_ANY";
        /// It is let through; hosts named by HTTP or SNI are resolved by the proxy.
        AllowAnyDynamicDns = 3, "ALLOW_ANY_DYNAMIC_DNS";
    }
}

/// Where traffic on unknown ports of a pod goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InboundTrafficPolicy {
    /// Where it goes.
    pub mode: InboundTrafficPolicyMode,
}

wire_enum! {
    /// Where traffic on unknown ports of a pod goes.
    InboundTrafficPolicyMode {
        /// To the address that the client chose.
        Passthrough = 0, "PASSTHROUGH";
        /// To 127.0.0.1.
        Localhost = 1, "LOCALHOST";
    }
}

/// A place that configuration comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSource {
    /// `fs:///path` for files, `xds://host:port` for an xDS server, `k8s://` for the Kubernetes API.
    pub address: String,
    /// TLS towards the server.
    pub tls_settings: Option<ClientTlsSettings>,
    /// What is asked for; empty is everything.
    pub subscribed_resources: Vec<Resource>,
}

wire_enum! {
    /// What a configuration source can be asked for.
    Resource {
        /// Services and their endpoints alone.
        ServiceRegistry = 0, "SERVICE_REGISTRY";
    }
}

/// A root that the mesh trusts. One of `pem` and `spiffe_bundle_url` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateData {
    /// The certificate as PEM.
    pub pem: Option<String>,
    /// Where a SPIFFE bundle is fetched.
    pub spiffe_bundle_url: Option<String>,
    /// The Kubernetes signers whose certificates it proves.
    pub cert_signers: Vec<String>,
    /// The trust domains that it holds for; empty is all.
    pub trust_domains: Vec<String>,
}

/// A certificate that the control plane once issued.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Certificate {
    /// The secret it was written to.
    pub secret_name: String,
    /// The names it held.
    pub dns_names: Vec<String>,
}

/// Settings of some services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSettings {
    /// The settings.
    pub settings: Option<Settings>,
    /// The hosts they hold for, exact or with `*` in front.
    pub hosts: Vec<String>,
}

/// What can be set for a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Whether clients are kept to endpoints of their own cluster.
    pub cluster_local: bool,
}

/// Which services of ambient mode reach beyond their cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceScopeConfigs {
    /// The namespaces of the services; `None` is every one.
    pub namespace_selector: Option<LabelSelector>,
    /// The services; `None` is every one.
    pub services_selector: Option<LabelSelector>,
    /// How far they reach.
    pub scope: ServiceScope,
}

wire_enum! {
    /// How far a service reaches.
    ServiceScope {
        /// Within its cluster.
        Local = 0, "LOCAL";
        /// In all clusters of the mesh.
        Global = 1, "GLOBAL";
    }
}

/// An outer CA that signs for the mesh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ca {
    /// Where it is reached.
    pub address: String,
    /// TLS towards it.
    pub tls_settings: Option<ClientTlsSettings>,
    /// How long a request may take.
    pub request_timeout: Option<Duration>,
    /// Whether the control plane asks it on behalf of proxies, rather than the proxies themselves.
    pub istiod_side: bool,
}

/// The providers that hold where no `Telemetry` says otherwise, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultProviders {
    /// For traces.
    pub tracing: Vec<String>,
    /// For metrics.
    pub metrics: Vec<String>,
    /// For access logs.
    pub access_logging: Vec<String>,
}

/// How proxies normalise the paths of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyPathNormalization {
    /// The kind of normalisation.
    pub normalization: NormalizationType,
}

wire_enum! {
    /// The kinds of path normalisation.
    NormalizationType {
        /// As `BASE`.
        Default = 0, "DEFAULT";
        /// Paths stay as they are.
        None = 1, "NONE";
        /// By RFC 3986, and backslashes become slashes.
        Base = 2, "BASE";
        /// As `BASE`, and runs of slashes become one.
        MergeSlashes = 3, "MERGE_SLASHES";
        /// As `MERGE_SLASHES`, after escaped slashes and backslashes are decoded.
        DecodeAndMergeSlashes = 4, "DECODE_AND_MERGE_SLASHES";
    }
}

/// Bounds on TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfig {
    /// The oldest version.
    pub min_protocol_version: TlsProtocol,
    /// The curves, best first; empty is Envoy's list.
    pub ecdh_curves: Vec<String>,
    /// The cipher suites; empty is Istio's list.
    pub cipher_suites: Vec<String>,
}

wire_enum! {
    /// Versions of TLS.
    TlsProtocol {
        /// Istio's choice.
        Auto = 0, "TLS_AUTO";
        /// TLS 1.2.
        V1_2 = 1, "TLSV1_2";
        /// TLS 1.3.
        V1_3 = 2, "TLSV1_3";
    }
}

/// What a DestinationRule inherits where it is silent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultTrafficPolicy {
    /// Limits on connections and requests.
    pub connection_pool: Option<ConnectionPoolSettings>,
    /// When failing endpoints are left out.
    pub outlier_detection: Option<OutlierDetection>,
}
