//! The environment variables of istiod, by name.
//!
//! A variable that is set but not read has no effect, which is logged at start. So this list must
//! contain every variable that istiod reads: a test verifies that it contains all that Navarch
//! reads.

/// All variables of istiod (1.32), each with the value that matches Navarch's behaviour if it is
/// not read, if there is one. Variables of features that Navarch does not have, such as caches,
/// have no such value.
pub(super) const ISTIOD: &[(&str, Option<&str>)] = &[
    ("AMBIENT_ENABLE_BAGGAGE", None),
    ("AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY", None),
    ("AMBIENT_ENABLE_MULTI_NETWORK", None),
    ("AMBIENT_ENABLE_MULTI_NETWORK_INGRESS", None),
    ("AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT", None),
    ("AMBIENT_ENABLE_STATUS", None),
    ("AMBIENT_SCOPED_ADDRESS_PUSHES", None),
    ("AUDIENCE", None),
    ("BLOCKED_CIDRS_IN_JWKS_URIS", None),
    ("BLOCKED_CIDRS_IN_WASM_FETCH", None),
    ("CA_TRUSTED_NODE_ACCOUNTS", None),
    ("CERT_SIGNER_DOMAIN", None),
    ("CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR", None),
    ("CITADEL_SELF_SIGNED_CA_CERT_TTL", None),
    ("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", None),
    ("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", None),
    (
        "CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE",
        None,
    ),
    ("CLUSTER_ID", None),
    ("COMPLIANCE_POLICY", None),
    ("DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", None),
    ("DEFAULT_WORKLOAD_CERT_TTL", None),
    ("DISABLE_SHADOW_HOST_SUFFIX", None),
    ("DISABLE_TRACK_REMAINING_CB_METRICS", None),
    ("ENABLE_100_CONTINUE_HEADERS", None),
    ("ENABLE_CA_SERVER", None),
    ("ENABLE_CLUSTER_TRUST_BUNDLE_API", None),
    ("ENABLE_DEBUG_ENDPOINT_AUTH", None),
    ("ENABLE_DEBUG_ON_HTTP", None),
    ("ENABLE_ENHANCED_DESTINATIONRULE_MERGE", None),
    ("ENABLE_GATEWAY_API_INFERENCE_EXTENSION", None),
    ("ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT", None),
    ("ENABLE_HCM_INTERNAL_NETWORKS", None),
    ("ENABLE_INGRESS_WAYPOINT_ROUTING", None),
    ("ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES", None),
    ("ENABLE_LAZY_SIDECAR_EVALUATION", None),
    ("ENABLE_LEADER_ELECTION", None),
    ("ENABLE_LOCALITY_WEIGHTED_LB_CONFIG", None),
    ("ENABLE_MCS_AUTO_EXPORT", None),
    ("ENABLE_MCS_CLUSTER_LOCAL", None),
    ("ENABLE_MCS_HOST", None),
    ("ENABLE_MCS_SERVICE_DISCOVERY", None),
    ("ENABLE_MULTICLUSTER_HEADLESS", None),
    ("ENABLE_NATIVE_SIDECARS", None),
    ("ENABLE_PROXY_FIND_POD_BY_IP", None),
    ("ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY", None),
    ("ENABLE_TLS_ON_SIDECAR_INGRESS", None),
    ("ENABLE_VTPROTOBUF", None),
    (
        "ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS",
        Some("false"),
    ),
    ("ENABLE_XDS_API_GENERATOR_AUTH", None),
    ("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", Some("false")),
    ("EXTERNAL_CA", None),
    ("EXTERNAL_ISTIOD", None),
    ("GRPC_KEEPALIVE_INTERVAL", None),
    ("GRPC_KEEPALIVE_TIMEOUT", None),
    ("INJECTION_WEBHOOK_CONFIG_NAME", None),
    ("INJECT_ENABLED", None),
    ("ISTIOD_CUSTOM_HOST", None),
    ("ISTIO_DELTA_XDS", Some("true")),
    ("ISTIO_DUAL_STACK", None),
    ("ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS", Some("false")),
    (
        "ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS",
        None,
    ),
    ("ISTIO_GPRC_MAXRECVMSGSIZE", None),
    ("ISTIO_GPRC_MAXSTREAMS", None),
    ("ISTIO_KUBE_CLIENT_CONTENT_TYPE", Some("protobuf")),
    ("ISTIO_MULTIROOT_MESH", None),
    ("ISTIO_WASM_MAX_BINARY_SIZE_BYTES", None),
    ("ISTIO_WATCH_NAMESPACE", None),
    ("ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY", None),
    ("JWKS_RESOLVER_INSECURE_SKIP_VERIFY", Some("false")),
    ("JWT_RULE", None),
    ("K8S_INGRESS_NS", None),
    ("K8S_SIGNER", None),
    (
        "LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES",
        None,
    ),
    ("LOCAL_CLUSTER_SECRET_WATCHER", None),
    ("MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP", None),
    ("MAX_WORKLOAD_CERT_TTL", None),
    ("MCS_API_GROUP", None),
    ("MCS_API_VERSION", None),
    ("METRICS_LOCALHOST_ACCESS_ONLY", Some("false")),
    ("MUTEX_PROFILE_FRACTION", None),
    ("PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS", None),
    ("PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE", None),
    ("PILOT_ANALYSIS_INTERVAL", None),
    ("PILOT_AUTO_ALLOW_WAYPOINT_POLICY", None),
    ("PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS", None),
    ("PILOT_CA_CERT_CONFIGMAP", None),
    ("PILOT_CERT_PROVIDER", None),
    ("PILOT_CONVERT_SIDECAR_SCOPE_CONCURRENCY", None),
    ("PILOT_CRL_CONFIGMAP", None),
    ("PILOT_DEBOUNCE_AFTER", None),
    ("PILOT_DEBOUNCE_MAX", None),
    ("PILOT_DISABLE_MX_ALPN", None),
    ("PILOT_DNS_CARES_UDP_MAX_QUERIES", None),
    ("PILOT_DNS_JITTER_DURATION", None),
    ("PILOT_DRAINING_LABEL", None),
    ("PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN", None),
    ("PILOT_ENABLE_AGENTGATEWAY", Some("false")),
    ("PILOT_ENABLE_ALPHA_GATEWAY_API", None),
    ("PILOT_ENABLE_ALPN_FILTER", None),
    ("PILOT_ENABLE_AMBIENT", None),
    ("PILOT_ENABLE_AMBIENT_WAYPOINTS", None),
    ("PILOT_ENABLE_ANALYSIS", None),
    ("PILOT_ENABLE_CA_CRL", None),
    ("PILOT_ENABLE_CDS_CACHE", None),
    ("PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY", None),
    ("PILOT_ENABLE_EDS_DEBOUNCE", None),
    ("PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES", None),
    ("PILOT_ENABLE_GATEWAY_API", None),
    ("PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS", None),
    ("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", None),
    ("PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", None),
    ("PILOT_ENABLE_GATEWAY_API_STATUS", None),
    ("PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER", None),
    ("PILOT_ENABLE_IP_AUTOALLOCATE", None),
    ("PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES", None),
    ("PILOT_ENABLE_METADATA_EXCHANGE", None),
    ("PILOT_ENABLE_MONGO_FILTER", None),
    ("PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS", None),
    ("PILOT_ENABLE_MYSQL_FILTER", None),
    ("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", None),
    ("PILOT_ENABLE_PERSISTENT_SESSION_FILTER", None),
    ("PILOT_ENABLE_QUIC_LISTENERS", None),
    ("PILOT_ENABLE_RDS_CACHE", None),
    ("PILOT_ENABLE_REDIS_FILTER", None),
    ("PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER", None),
    ("PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION", None),
    ("PILOT_ENABLE_SENDING_HBONE", None),
    ("PILOT_ENABLE_SERVICEENTRY_SELECT_PODS", None),
    ("PILOT_ENABLE_SIDECAR_LISTENING_HBONE", None),
    ("PILOT_ENABLE_STRICT_GATEWAY_MERGING", None),
    ("PILOT_ENABLE_TELEMETRY_LABEL", None),
    ("PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", None),
    ("PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS", None),
    ("PILOT_ENABLE_XDS_CACHE", None),
    ("PILOT_ENABLE_XDS_IDENTITY_CHECK", None),
    ("PILOT_ENDPOINT_TELEMETRY_LABEL", None),
    ("PILOT_ENVOY_FILTER_STATS", None),
    ("PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", None),
    ("PILOT_GATEWAY_API_CONTROLLER_NAME", None),
    ("PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME", None),
    ("PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT", None),
    ("PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE", None),
    ("PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE", None),
    ("PILOT_HTTP10", None),
    ("PILOT_IGNORE_RESOURCES", None),
    ("PILOT_INCLUDE_RESOURCES", None),
    ("PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS", None),
    ("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", None),
    ("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", None),
    ("PILOT_JWT_ENABLE_REMOTE_JWKS", None),
    ("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", None),
    ("PILOT_MAX_REQUESTS_PER_SECOND", None),
    ("PILOT_MULTICLUSTER_KUBECONFIG_PATH", None),
    ("PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API", None),
    ("PILOT_MX_ADDITIONAL_LABELS", None),
    ("PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME", None),
    ("PILOT_PERSISTENT_SESSION_HEADER_LABEL", None),
    ("PILOT_PERSISTENT_SESSION_LABEL", None),
    ("PILOT_PREFER_SENDING_HBONE", None),
    ("PILOT_PUSH_THROTTLE", None),
    ("PILOT_REMOTE_CLUSTER_TIMEOUT", None),
    ("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", None),
    ("PILOT_SEND_UNHEALTHY_ENDPOINTS", None),
    ("PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE", None),
    ("PILOT_SIDECAR_USE_REMOTE_ADDRESS", None),
    ("PILOT_SKIP_VALIDATE_TRUST_DOMAIN", None),
    ("PILOT_STATUS_MAX_WORKERS", None),
    ("PILOT_TRACE_SAMPLING", None),
    ("PILOT_UNIFIED_SIDECAR_SCOPE", None),
    ("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", None),
    ("PILOT_XDS_CACHE_INDEX_CLEAR_INTERVAL", None),
    ("PILOT_XDS_CACHE_SIZE", None),
    ("PILOT_XDS_CACHE_STATS", Some("true")),
    ("PLATFORM", None),
    ("POD_NAME", None),
    ("POD_NAMESPACE", None),
    ("PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES", None),
    ("RESOLVE_HOSTNAME_GATEWAYS", None),
    ("REVISION", None),
    ("ROOT_CA_DIR", None),
    ("SHARED_MESH_CONFIG", None),
    ("TOKEN_AUDIENCES", None),
    ("TOKEN_ISSUER", None),
    ("TRUSTED_GATEWAY_CIDR", None),
    ("UNSAFE_ENABLE_ADMIN_ENDPOINTS", None),
    ("UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS", Some("false")),
    ("USE_CACERTS_FOR_SELF_SIGNED_CA", Some("false")),
    ("USE_REMOTE_CERTS", None),
    ("VALIDATION_WEBHOOK_CONFIG_NAME", None),
    ("XDS_AUTH", None),
    ("XDS_AUTH_PLAINTEXT", None),
];

/// Those of [`ISTIOD`] that switch its caches of resources, or bound and clear them.
pub(super) const OF_CACHES: &[&str] = &[
    "PILOT_ENABLE_CDS_CACHE",
    "PILOT_ENABLE_RDS_CACHE",
    "PILOT_ENABLE_XDS_CACHE",
    "PILOT_XDS_CACHE_INDEX_CLEAR_INTERVAL",
    "PILOT_XDS_CACHE_SIZE",
];

/// Variables of earlier releases of istiod that changed what proxies do, each with the value that
/// matches the current behaviour.
pub(super) const REMOVED_VARIABLES: &[(&str, Option<&str>)] = &[
    ("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_INBOUND", Some("true")),
    ("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND", Some("true")),
];

/// Variables of earlier releases of istiod that are still read.
#[cfg(test)]
pub(super) const FORMER: &[&str] = &["PILOT_ENABLE_STATUS", "PILOT_STATUS_UPDATE_INTERVAL"];

/// Variables of Kubernetes clients.
#[cfg(test)]
pub(super) const OF_KUBERNETES: &[&str] = &["KUBECONFIG", "KUBERNETES_SERVICE_HOST"];

/// Variables of SPIFFE's workloads.
#[cfg(test)]
const OF_SPIFFE: &[&str] = &["SPIFFE_ENDPOINT_SOCKET"];

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::environment::Variables;
    use super::super::{Arguments, Command};
    use super::*;

    /// The variables after the settings of a control plane were read from them.
    fn read(values: &[(&str, &str)]) -> Variables {
        let variables = Variables::new(
            values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let Command::Discovery(discovery) = Arguments::parse_from(["navarch", "discovery"]).command
        else {
            panic!("another command")
        };
        let log_scopes = crate::admin::LogScopes::new(&[], String::new(), |_| Ok(()));
        discovery.config(&variables, log_scopes).unwrap();
        variables
    }

    #[test]
    fn every_variable_that_is_read_is_istiods_or_ours() {
        let read_names = read(&[]).read_names();
        let is_known = |name: &&String| {
            let name = name.as_str();
            // Those of OpenTelemetry are judged where traces are set up.
            name.starts_with("NAVARCH_")
                || name.starts_with("OTEL_")
                || [FORMER, OF_KUBERNETES, OF_SPIFFE].concat().contains(&name)
                || ISTIOD.iter().any(|(known, _)| *known == name)
        };

        let unknown: Vec<_> = read_names.iter().filter(|name| !is_known(name)).collect();
        assert_eq!(unknown, Vec::<&String>::new());

        // Most are read; of these, none says what happens without reading it.
        assert!(read_names.len() > 100, "{read_names:?}");
        let both: Vec<_> = ISTIOD
            .iter()
            .filter(|(name, usual)| usual.is_some() && read_names.contains(*name))
            .collect();
        assert_eq!(both, Vec::<&(&str, Option<&str>)>::new());
        assert!(ISTIOD.is_sorted() && ISTIOD.windows(2).all(|pair| pair[0].0 != pair[1].0));
    }

    #[test]
    fn all_variables_of_caches_are_istiods_and_unread() {
        let values: Vec<_> = OF_CACHES.iter().map(|name| (*name, "1")).collect();
        assert_eq!(read(&values).ignored(), OF_CACHES);

        // The metrics of the engine's results have istiod's names, and are always there.
        assert!(
            read(&[("PILOT_XDS_CACHE_STATS", "true")])
                .ignored()
                .is_empty()
        );
    }

    #[test]
    fn set_but_unread_variables_are_reported() {
        let variables = read(&[
            ("ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS", "true"),
            ("PILOT_HTTP10", "true"),
            ("EXTERNAL_ISTIOD", "false"),
            ("K8S_SIGNER", "s"),
            ("PILOT_ANALYSIS_INTERVAL", "5s"),
            ("TOKEN_ISSUER", ""),
            ("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_INBOUND", "true"),
            ("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND", "false"),
            ("METRICS_LOCALHOST_ACCESS_ONLY", "true"),
            ("PATH", "/bin"),
        ]);

        assert_eq!(
            variables.ignored(),
            [
                "ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS",
                "METRICS_LOCALHOST_ACCESS_ONLY",
                "PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND"
            ]
        );

        assert_eq!(read(&[]).ignored(), Vec::<&str>::new());
    }
}
