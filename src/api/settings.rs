//! Settings given at start (flags and environment) that decide what is made of the configuration.
//!
//! One table: field, Istio's environment variable, default. They do not change while the process lives.

use super::duration::Duration;
use super::names::{ClusterId, Namespace};

/// What flags and environment say. Field docs name Istio's variable or flag.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that do not depend on each other, as the environment has them"
)]
pub struct Settings {
    /// `CLUSTER_ID`: the cluster that Navarch itself runs in. Default `Kubernetes`.
    pub cluster_id: ClusterId,
    /// `--domain`: DNS suffix of Kubernetes services. Default `cluster.local`.
    pub domain_suffix: String,
    /// `POD_NAMESPACE`: where the control plane lives. Default `istio-system`.
    pub system_namespace: Namespace,
    /// `ISTIO_DUAL_STACK`: both address families of services and workloads are used. Default false.
    pub dual_stack: bool,
    /// `PILOT_ENABLE_IP_AUTOALLOCATE`: addresses of ServiceEntries are allocated by the controller. Default true.
    pub ip_autoallocate: bool,
    /// `PILOT_SEND_UNHEALTHY_ENDPOINTS` as the default of services. Default false.
    pub send_unhealthy_endpoints: bool,
    /// `PILOT_PERSISTENT_SESSION_LABEL`. Default `istio.io/persistent-session`.
    pub persistent_session_label: String,
    /// `PILOT_PERSISTENT_SESSION_HEADER_LABEL`. Default `istio.io/persistent-session-header`.
    pub persistent_session_header_label: String,
    /// `PILOT_ENABLE_AMBIENT`. Default false.
    pub ambient: bool,
    /// `PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS`: unhealthy endpoints are sent as such, unless outlier detection of the service sets
    /// `minHealthPercent`. Default true.
    pub auto_send_unhealthy_endpoints: bool,
    /// `PILOT_DRAINING_LABEL`: endpoints with this label are draining; empty turns it off. Default `istio.io/draining`.
    pub draining_label: String,
    /// `ENABLE_ENHANCED_DESTINATIONRULE_MERGE`: DestinationRules of one host are merged by `exportTo`. Default true.
    pub enhanced_destination_rule_merge: bool,
    /// `PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES`: sidecars balance over headless services. Default false.
    pub eds_for_headless: bool,
    /// `ENABLE_LOCALITY_WEIGHTED_LB_CONFIG`: every cluster balances by locality weights. Default false.
    pub locality_weighted_lb: bool,
    /// `PILOT_ENABLE_REDIS_FILTER`: Redis ports get Redis clusters and filters. Default false.
    pub redis_filter: bool,
    /// `PILOT_ENABLE_TELEMETRY_LABEL`: clusters and endpoints carry the names that metrics use. Default true.
    pub telemetry_label: bool,
    /// `PILOT_ENDPOINT_TELEMETRY_LABEL`: endpoints carry the names that metrics use. Default true.
    pub endpoint_telemetry_label: bool,
    /// `PILOT_ENABLE_METADATA_EXCHANGE`: proxies tell each other who they are. Default true.
    pub metadata_exchange: bool,
    /// `PILOT_DISABLE_MX_ALPN`: the metadata exchange is not negotiated by ALPN. Default false.
    pub disable_metadata_exchange_alpn: bool,
    /// `PILOT_MX_ADDITIONAL_LABELS`: further labels that are exchanged, comma-separated. Default empty.
    pub metadata_exchange_labels: String,
    /// `PILOT_DNS_CARES_UDP_MAX_QUERIES`: after so many queries a proxy's resolver takes a new socket. Default 100.
    pub dns_udp_max_queries: u32,
    /// `PILOT_DNS_JITTER_DURATION`: chance added to the time between DNS queries. Default 100 ms.
    pub dns_jitter: Duration,
    /// `LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES`: endpoints outside the mesh are named after their
    /// ServiceEntry in metrics. Default false.
    pub label_external_canonical_services: bool,
    /// `PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES`: towards hosts outside the mesh a DestinationRule wins over
    /// certificates that the proxy names. Default true.
    pub prefer_rule_tls_for_external: bool,
    /// `DISABLE_TRACK_REMAINING_CB_METRICS`: circuit breakers do not count what is left. Default true.
    pub disable_track_remaining: bool,
    /// `PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS`: most names that a proxy keeps in its cache of dynamic DNS. Default 1024.
    pub dynamic_dns_max_hosts: u32,
    /// `PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE`: ports of services stay beside the ingress of a Sidecar.
    /// Default false.
    pub merge_sidecar_ingress: bool,
    /// `ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS`: proxies with IPv6 alone use IPv4 towards the outside, too.
    /// Default false.
    pub ipv4_for_ipv6_only: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_id: ClusterId::new("Kubernetes"),
            domain_suffix: "cluster.local".to_owned(),
            system_namespace: Namespace::new("istio-system"),
            dual_stack: false,
            ip_autoallocate: true,
            send_unhealthy_endpoints: false,
            persistent_session_label: "istio.io/persistent-session".to_owned(),
            persistent_session_header_label: "istio.io/persistent-session-header".to_owned(),
            ambient: false,
            auto_send_unhealthy_endpoints: true,
            draining_label: "istio.io/draining".to_owned(),
            enhanced_destination_rule_merge: true,
            eds_for_headless: false,
            locality_weighted_lb: false,
            redis_filter: false,
            telemetry_label: true,
            endpoint_telemetry_label: true,
            metadata_exchange: true,
            disable_metadata_exchange_alpn: false,
            metadata_exchange_labels: String::new(),
            dns_udp_max_queries: 100,
            dns_jitter: Duration::from_millis(100),
            label_external_canonical_services: false,
            prefer_rule_tls_for_external: true,
            disable_track_remaining: true,
            dynamic_dns_max_hosts: 1024,
            merge_sidecar_ingress: false,
            ipv4_for_ipv6_only: false,
        }
    }
}
