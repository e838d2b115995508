//! How variables are read, and that all of pilot-agent's are.

use std::path::{Path, PathBuf};

use super::*;

/// pilot-agent's variables (1.32) besides those that become metadata of the node.
const VARIABLES: &[&str] = &[
    "CA_ADDR",
    "CA_PROVIDER",
    "CA_ROOT_CA",
    "CLOUD_PLATFORM",
    "CREDENTIAL_FETCHER_TYPE",
    "CREDENTIAL_IDENTITY_PROVIDER",
    "DISABLE_ENVOY",
    "DNS_FORWARD_PARALLEL",
    "DNS_FORWARD_TIMEOUT",
    "DNS_PROXY_ADDR",
    "ECC_CURVE",
    "ECC_SIGNATURE_ALGORITHM",
    "ENABLE_PROBE_KEEPALIVE_CONNECTIONS",
    "ENVOY_PROMETHEUS_PORT",
    "ENVOY_SECURE_MERGED_METRICS_PORT",
    "ENVOY_SECURE_METRICS_PORT",
    "ENVOY_SKIP_DEPRECATED_LOGS",
    "ENVOY_STATUS_PORT",
    "EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
    "FILE_DEBOUNCE_DURATION",
    "FILE_MOUNTED_CERTS",
    "GCP_METADATA",
    "GCP_QUOTA_PROJECT",
    "GCP_ZONE",
    "GRPC_KEEPALIVE_INTERVAL",
    "GRPC_KEEPALIVE_TIMEOUT",
    "GRPC_XDS_BOOTSTRAP",
    "HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED",
    "INSTANCE_IP",
    "ISTIOD_SAN",
    "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION",
    "ISTIO_BOOTSTRAP",
    "ISTIO_BOOTSTRAP_OVERRIDE",
    "ISTIO_CPU_LIMIT",
    "ISTIO_ENABLE_HTTP2_PROBING",
    "ISTIO_ENVOY_ENABLE_CORE_DUMP",
    "ISTIO_KUBE_APP_PROBERS",
    "ISTIO_PROMETHEUS_ANNOTATIONS",
    "JWT_POLICY",
    "MINIMUM_DRAIN_DURATION",
    "OUTPUT_CERTS",
    "PEER_METADATA_DISCOVERY",
    "PILOT_AGENT_MERGE_ENVOY_STATS",
    "PILOT_CERT_PROVIDER",
    "PKCS8_KEY",
    "POD_NAME",
    "POD_NAMESPACE",
    "PROV_CERT",
    "PROXY_CONFIG",
    "PROXY_CONFIG_XDS_AGENT",
    "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION",
    "SECRET_GRACE_PERIOD_RATIO",
    "SECRET_GRACE_PERIOD_RATIO_JITTER",
    "SECRET_TTL",
    "SERVICE_ACCOUNT",
    "TRUST_DOMAIN",
    "WASM_HTTP_REQUEST_MAX_RETRIES",
    "WASM_HTTP_REQUEST_TIMEOUT",
    "WASM_INSECURE_REGISTRIES",
    "WASM_MODULE_EXPIRY",
    "WASM_PURGE_INTERVAL",
    "WORKLOAD_IDENTITY_SOCKET_FILE",
    "WORKLOAD_RSA_KEY_SIZE",
    "XDS_AUTH_PROVIDER",
    "XDS_ROOT_CA",
];

/// All sources of the agent but this.
fn sources() -> String {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("variables/tests.rs") {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

#[test]
fn every_variable_of_pilot_agent_is_read() {
    let sources = sources();
    let is_read = |name: &str| sources.contains(&format!("\"{name}\""));
    let unread: Vec<_> = VARIABLES.iter().filter(|name| !is_read(name)).collect();
    assert_eq!(unread, Vec::<&&str>::new());
}

#[test]
fn invalid_variables_are_treated_as_unset() {
    let variables: Variables = [
        ("A", "yes"),
        ("B", "true"),
        ("C", "3s"),
        ("D", "x"),
        ("E", ""),
    ]
    .into_iter()
    .collect();
    assert!(!variables.flag("A", false));
    assert!(variables.flag("B", false));
    assert_eq!(
        variables.duration("C", Duration::ZERO),
        Duration::from_secs(3)
    );

    assert_eq!(variables.number("D", 7), 7);
    assert_eq!(variables.get("E"), Some(""));
    assert_eq!(variables.get("F"), None);
}
