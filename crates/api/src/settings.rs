//! Settings given at start (flags and environment) that affect the generated configuration.
//!
//! One table: field, Istio's environment variable, default. They are constant while the process
//! runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use navarch_base::compliance::CompliancePolicy;
use serde::{Deserialize, Serialize};

use super::cluster_settings::ClusterSettings;
use super::duration::Duration;
use super::gateway_api::GatewayApiSettings;
use super::hbone_settings::HboneSettings;
use super::names::{ClusterId, Namespace};
use super::rollout::RolloutSettings;

/// The default of `NAVARCH_FINE_GRAINED_ROUTES_MIN_HOSTS`.
///
/// Virtual hosts of sidecars have some 800 bytes each. In a table of 1,000, one changed host sends
/// 800 kB to each proxy (40 kB compressed), which its agent and Envoy decode; alone it sends one. What
/// each costs more on its own is 150 bytes at the first sync, 90 in the request of a proxy that comes
/// back, and a second copy in Envoy. `docs/operations.md` has the arithmetic.
pub const FINE_GRAINED_ROUTES_MIN_HOSTS: u32 = 1000;

/// Settings from flags and environment variables. Field docs name Istio's variable or flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, one for each environment variable"
)]
pub struct Settings {
    /// `CLUSTER_ID`: the cluster that Navarch itself runs in. Default `Kubernetes`.
    pub cluster_id: ClusterId,
    /// `--domain`: DNS suffix of Kubernetes services. Default `cluster.local`.
    pub domain_suffix: String,
    /// `POD_NAMESPACE`: the namespace of the control plane. Default `istio-system`.
    pub system_namespace: Namespace,
    /// `K8S_INGRESS_NS`: the namespace of the gateway that serves Ingresses. Default
    /// `istio-system`.
    pub ingress_namespace: Namespace,
    /// `ISTIO_DUAL_STACK`: both address families of services and workloads are used. Default false.
    pub dual_stack: bool,
    /// `PILOT_ENABLE_IP_AUTOALLOCATE`: addresses of ServiceEntries are allocated by the controller.
    /// Default true.
    pub ip_autoallocate: bool,
    /// `PILOT_SEND_UNHEALTHY_ENDPOINTS` as the default of services. Default false.
    pub send_unhealthy_endpoints: bool,
    /// `PILOT_PERSISTENT_SESSION_LABEL`. Default `istio.io/persistent-session`.
    pub persistent_session_label: String,
    /// `PILOT_PERSISTENT_SESSION_HEADER_LABEL`. Default `istio.io/persistent-session-header`.
    pub persistent_session_header_label: String,
    /// `PILOT_ENABLE_AMBIENT`. Default false.
    pub ambient: bool,
    /// `PILOT_AUTO_ALLOW_WAYPOINT_POLICY`: ztunnel allows the waypoints of a workload, and no other
    /// clients unless a policy allows them. Default false.
    pub auto_allow_waypoints: bool,
    /// `AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY`: policies in dry-run mode are sent to ztunnel,
    /// too. Default false.
    pub ambient_dry_run: bool,
    /// `PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS`: unhealthy endpoints are sent as such, unless outlier
    /// detection of the service sets `minHealthPercent`. Default true.
    pub auto_send_unhealthy_endpoints: bool,
    /// `PILOT_DRAINING_LABEL`: endpoints with this label are draining; empty turns it off. Default
    /// `istio.io/draining`.
    pub draining_label: String,
    /// `ENABLE_ENHANCED_DESTINATIONRULE_MERGE`: DestinationRules of one host are merged by
    /// `exportTo`. Default true.
    pub enhanced_destination_rule_merge: bool,
    /// `PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES`: sidecars balance over headless services. Default
    /// false.
    pub eds_for_headless: bool,
    /// `PILOT_UNIFIED_SIDECAR_SCOPE`: among services of the same host, sidecars prefer a Kubernetes
    /// Service, and Gateway API routes of their own namespace. Default true.
    pub unified_sidecar_scope: bool,
    /// `PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE`: if several namespaces have the host of a
    /// destination, the host means a Kubernetes Service or the oldest service, not the
    /// alphabetically first. Default true.
    pub sidecar_best_namespace: bool,
    /// `PILOT_ENVOY_FILTER_STATS`: metrics report which EnvoyFilters have an effect. Default false.
    pub envoy_filter_stats: bool,
    /// `PILOT_ENABLE_QUIC_LISTENERS`: HTTPS servers of Gateways are served over QUIC as well, if a
    /// service of the gateway has the port for UDP, too. Default false.
    pub quic_listeners: bool,
    /// `COMPLIANCE_POLICY`: the standard that restricts TLS. Default none.
    pub compliance: CompliancePolicy,
    /// `ENABLE_LOCALITY_WEIGHTED_LB_CONFIG`: every cluster balances by locality weights. Default
    /// false.
    pub locality_weighted_lb: bool,
    /// `PILOT_ENABLE_REDIS_FILTER`: Redis ports get Redis clusters and filters. Default false.
    pub redis_filter: bool,
    /// `PILOT_ENABLE_TELEMETRY_LABEL`: clusters and endpoints contain the names for metrics.
    /// Default true.
    pub telemetry_label: bool,
    /// `PILOT_ENDPOINT_TELEMETRY_LABEL`: endpoints contain the names for metrics. Default true.
    pub endpoint_telemetry_label: bool,
    /// `PILOT_ENABLE_METADATA_EXCHANGE`: proxies exchange workload metadata. Default true.
    pub metadata_exchange: bool,
    /// `PILOT_DISABLE_MX_ALPN`: the metadata exchange is not negotiated by ALPN. Default false.
    pub disable_metadata_exchange_alpn: bool,
    /// `PILOT_MX_ADDITIONAL_LABELS`: further labels that are exchanged, comma-separated. Default
    /// empty.
    pub metadata_exchange_labels: String,
    /// `PILOT_DNS_CARES_UDP_MAX_QUERIES`: after this number of queries a proxy's resolver opens a
    /// new socket. Default 100.
    pub dns_udp_max_queries: u32,
    /// `PILOT_DNS_JITTER_DURATION`: random addition to the time between DNS queries. Default 100
    /// ms.
    pub dns_jitter: Duration,
    /// Whether `discoverySelectors` apply to Istio's configuration, too: true if it comes from a
    /// Kubernetes API server, false if it is read from files. Set by the source, not by a variable.
    /// Default false.
    pub discover_configuration: bool,
    /// `ENABLE_PROXY_FIND_POD_BY_IP`: a proxy whose pod is not found by name is found by its main
    /// address. Default false.
    pub find_pods_by_address: bool,
    /// `PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES`: Kubernetes Services select WorkloadEntries.
    /// Default true.
    pub services_select_workload_entries: bool,
    /// `PILOT_ENABLE_SERVICEENTRY_SELECT_PODS`: ServiceEntries select pods. Default true.
    pub service_entries_select_pods: bool,
    /// `PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS`: WorkloadEntries that request health checks are
    /// used only once they are healthy. Default true.
    pub workload_entry_health_checks: bool,
    /// `LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES`: endpoints outside the mesh
    /// have the name of their ServiceEntry in metrics. Default false.
    pub label_external_canonical_services: bool,
    /// `PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES`: for hosts outside the mesh, a
    /// DestinationRule takes precedence over certificates that the proxy names. Default true.
    pub prefer_rule_tls_for_external: bool,
    /// `DISABLE_TRACK_REMAINING_CB_METRICS`: circuit breakers do not track the remaining resources.
    /// Default true.
    pub disable_track_remaining: bool,
    /// `PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS`: the maximum number of names in a proxy's cache of
    /// dynamic DNS. Default 1024.
    pub dynamic_dns_max_hosts: u32,
    /// `PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE`: ports of services are kept beside the
    /// ingress of a Sidecar. Default false.
    pub merge_sidecar_ingress: bool,
    /// `ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS`: proxies with only IPv6 use IPv4 for
    /// outbound traffic, too. Default false.
    pub ipv4_for_ipv6_only: bool,
    /// `PILOT_ENABLE_SIDECAR_LISTENING_HBONE`. Default false; true with `PILOT_ENABLE_AMBIENT`.
    pub sidecar_listening_hbone: bool,
    /// `PILOT_HTTP10`: every HTTP listener accepts HTTP/1.0. Default false.
    pub http10: bool,
    /// `PILOT_SIDECAR_USE_REMOTE_ADDRESS`: outbound listeners of sidecars trust the peer's address.
    /// Default false.
    pub sidecar_use_remote_address: bool,
    /// `ENABLE_100_CONTINUE_HEADERS`: `100 Continue` is forwarded. Default true.
    pub proxy_100_continue: bool,
    /// `ENABLE_HCM_INTERNAL_NETWORKS`: addresses of the mesh networks are internal addresses.
    /// Default false.
    pub hcm_internal_networks: bool,
    /// `PILOT_ENABLE_ALPN_FILTER`: the ALPN of upstream connections follows the request's protocol.
    /// Default true.
    pub alpn_filter: bool,
    /// `PILOT_ENABLE_PERSISTENT_SESSION_FILTER`: sessions can stick to an endpoint. Default false.
    pub persistent_session_filter: bool,
    /// `PILOT_ENABLE_MONGO_FILTER`. Default true.
    pub mongo_filter: bool,
    /// `PILOT_ENABLE_MYSQL_FILTER`. Default false.
    pub mysql_filter: bool,
    /// `PILOT_TRACE_SAMPLING`: percentage of traced requests, unless set elsewhere. Default 1.
    pub trace_sampling: f64,
    /// `MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP`; 0 is unlimited. Default 1.
    pub max_connections_per_socket_event: u32,
    /// `PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT`: timeout of a TLS handshake; zero is
    /// unlimited. Default 15s.
    pub transport_socket_connect_timeout: Duration,
    /// `PILOT_FILTER_GATEWAY_CLUSTER_CONFIG`: gateways get clusters only of services that their
    /// routes and the mesh's extension providers reference. Default false.
    pub filter_gateway_clusters: bool,
    /// `PILOT_SCOPE_GATEWAY_TO_NAMESPACE`: gateways serve the Gateways of their own namespace only.
    /// Default false.
    pub scope_gateway_to_namespace: bool,
    /// `PILOT_ENABLE_STRICT_GATEWAY_MERGING`: proxies that the control plane deploys for a Gateway
    /// of the Gateway API serve no Istio Gateway of another namespace. Default true.
    pub strict_gateway_merging: bool,
    /// `PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION`: hosts of a gateway with the same routes share a
    /// virtual host. Default true.
    pub route_collapse: bool,
    /// `NAVARCH_FINE_GRAINED_ROUTES=true`: proxies on delta streams get virtual hosts one by one
    /// (VHDS), unless their metadata disables it. Default false.
    pub fine_grained_routes: bool,
    /// `NAVARCH_FINE_GRAINED_ROUTES=auto`, `NAVARCH_FINE_GRAINED_ROUTES_MIN_HOSTS`: so do those that
    /// are known to take them, and whose largest route configuration has this many virtual hosts
    /// when they start. `None` is never. Default 1000.
    pub fine_grained_routes_min_hosts: Option<u32>,
    /// `PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER`: one listener for all pods of a headless TCP
    /// port. Default false.
    pub headless_filter_chain_listener: bool,
    /// `ENABLE_TLS_ON_SIDECAR_INGRESS`: the TLS settings of Sidecar ingress listeners take effect.
    /// Default false.
    pub tls_on_sidecar_ingress: bool,
    /// `PILOT_SKIP_VALIDATE_TRUST_DOMAIN`: any trust domain of a trusted root is accepted. Default
    /// false.
    pub skip_validate_trust_domain: bool,
    /// `PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS`: CUSTOM policies of one workload may name
    /// several providers. Default false.
    pub multiple_custom_authorization_providers: bool,
    /// `ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY`: policies can select gateways of the Gateway API.
    /// Default true.
    pub selector_based_gateway_policy: bool,
    /// `PILOT_JWT_ENABLE_REMOTE_JWKS`: which component fetches the keys of token issuers. Default
    /// `istiod`.
    pub key_fetching: KeyFetching,
    /// `DISABLE_SHADOW_HOST_SUFFIX`: mirrored requests keep their authority as it is. Default true.
    pub disable_shadow_host_suffix: bool,
    /// `PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN`: virtual hosts also match hosts with a dot at the
    /// end. Default true.
    pub absolute_fqdn_domains: bool,
    /// `ENABLE_MULTICLUSTER_HEADLESS`: names of headless services include endpoints of other
    /// clusters. Default true.
    pub multicluster_headless: bool,
    /// Which service accounts may read the secrets of their namespace. Set by the source of the
    /// configuration, not by a variable. Default: all.
    pub secret_readers: SecretReaders,
    /// The environment of the process, for headers of tracing providers that reference a variable
    /// (`envName`). It is never printed.
    #[serde(skip)]
    pub environment: Environment,
    /// `PILOT_ENABLE_GATEWAY_API` and the other variables of the Gateway API.
    pub gateway_api: GatewayApiSettings,
    /// Settings for HBONE and waypoints.
    pub hbone: HboneSettings,
    /// Settings for several clusters.
    pub clusters: ClusterSettings,
    /// `NAVARCH_ROLLOUT` and `NAVARCH_ROLLOUT_PAUSE`: for objects without rollout annotations of
    /// their own.
    pub rollouts: RolloutSettings,
}

/// Which service accounts may read the secrets of their namespace (kept in Kubernetes Secrets and
/// served over SDS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretReaders {
    /// All of them: a source of files has no authorization to check.
    All,
    /// Those that the Kubernetes API server allows to list secrets, checked by SubjectAccessReview.
    Reviewed,
}

/// Which component fetches the keys of token issuers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyFetching {
    /// Navarch (`istiod`, `false`).
    #[default]
    ControlPlane,
    /// Proxies, for keys on services of the mesh; Navarch for all others (`hybrid`, `true`).
    Hybrid,
    /// Proxies (`envoy`).
    Proxy,
}

/// Environment variables. They can contain secrets, so `Debug` omits them.
#[derive(Clone, Default, PartialEq)]
pub struct Environment(Arc<BTreeMap<String, String>>);

impl Environment {
    /// From names and values.
    #[must_use]
    pub fn new(variables: BTreeMap<String, String>) -> Self {
        Self(Arc::new(variables))
    }

    /// The value of a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_id: ClusterId::new("Kubernetes"),
            domain_suffix: "cluster.local".to_owned(),
            system_namespace: Namespace::new("istio-system"),
            ingress_namespace: Namespace::new("istio-system"),

            dual_stack: false,
            ip_autoallocate: true,

            send_unhealthy_endpoints: false,
            persistent_session_label: "istio.io/persistent-session".to_owned(),
            persistent_session_header_label: "istio.io/persistent-session-header".to_owned(),

            ambient: false,
            auto_allow_waypoints: false,
            ambient_dry_run: false,

            auto_send_unhealthy_endpoints: true,
            draining_label: "istio.io/draining".to_owned(),
            enhanced_destination_rule_merge: true,
            eds_for_headless: false,

            unified_sidecar_scope: true,
            sidecar_best_namespace: true,
            envoy_filter_stats: false,
            quic_listeners: false,
            compliance: CompliancePolicy::default(),

            locality_weighted_lb: false,
            redis_filter: false,

            telemetry_label: true,
            endpoint_telemetry_label: true,
            metadata_exchange: true,
            disable_metadata_exchange_alpn: false,
            metadata_exchange_labels: String::new(),

            dns_udp_max_queries: 100,
            dns_jitter: Duration::from_millis(100),

            discover_configuration: false,

            find_pods_by_address: false,
            services_select_workload_entries: true,
            service_entries_select_pods: true,
            workload_entry_health_checks: true,

            label_external_canonical_services: false,
            prefer_rule_tls_for_external: true,
            disable_track_remaining: true,
            dynamic_dns_max_hosts: 1024,

            merge_sidecar_ingress: false,
            ipv4_for_ipv6_only: false,
            sidecar_listening_hbone: false,

            http10: false,
            sidecar_use_remote_address: false,
            proxy_100_continue: true,
            hcm_internal_networks: false,
            alpn_filter: true,

            persistent_session_filter: false,
            mongo_filter: true,
            mysql_filter: false,

            trace_sampling: 1.0,
            max_connections_per_socket_event: 1,
            transport_socket_connect_timeout: Duration::from_secs(15),

            filter_gateway_clusters: false,
            scope_gateway_to_namespace: false,
            strict_gateway_merging: true,

            route_collapse: true,
            fine_grained_routes: false,
            fine_grained_routes_min_hosts: Some(FINE_GRAINED_ROUTES_MIN_HOSTS),
            headless_filter_chain_listener: false,

            tls_on_sidecar_ingress: false,
            skip_validate_trust_domain: false,
            multiple_custom_authorization_providers: false,

            selector_based_gateway_policy: true,

            key_fetching: KeyFetching::default(),

            disable_shadow_host_suffix: true,
            absolute_fqdn_domains: true,
            multicluster_headless: true,

            secret_readers: SecretReaders::All,
            environment: Environment::default(),

            gateway_api: GatewayApiSettings::default(),
            hbone: HboneSettings::default(),
            clusters: ClusterSettings::default(),
            rollouts: RolloutSettings::default(),
        }
    }
}
