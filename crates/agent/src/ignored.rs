//! The environment variables of pilot-agent that the agent does not read.

use super::variables::Variables;

/// pilot-agent's variables that are not read, each with the value that matches the agent's
/// behaviour, if there is one. A test verifies that none is read.
pub const UNREAD: &[(&str, Option<&str>)] = &[
    ("CREDENTIAL_IDENTITY_PROVIDER", None),
    ("JWT_POLICY", Some("third-party-jwt")),
    ("PKCS8_KEY", Some("true")),
];

/// Variables of pilot-agent that are set but have no effect.
#[must_use]
pub fn ignored(variables: &Variables) -> Vec<&'static str> {
    let is_ignored = |(name, usual): &&(&str, Option<&str>)| {
        let value = Some(variables.text(name)).filter(|value| !value.is_empty());
        value.is_some() && value != *usual
    };
    UNREAD
        .iter()
        .filter(is_ignored)
        .map(|(name, _)| *name)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// pilot-agent's variables (1.32) besides those of [`UNREAD`] and those that become metadata of
    /// the node.
    const READ: &[&str] = &[
        "CA_ADDR",
        "CA_PROVIDER",
        "CA_ROOT_CA",
        "CLOUD_PLATFORM",
        "CREDENTIAL_FETCHER_TYPE",
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
        "MINIMUM_DRAIN_DURATION",
        "OUTPUT_CERTS",
        "PEER_METADATA_DISCOVERY",
        "PILOT_AGENT_MERGE_ENVOY_STATS",
        "PILOT_CERT_PROVIDER",
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
                } else if !path.ends_with("ignored.rs") {
                    text.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        text
    }

    #[test]
    fn every_variable_is_either_read_or_listed_as_ignored() {
        let sources = sources();
        let is_read = |name: &str| sources.contains(&format!("\"{name}\""));
        let unread: Vec<_> = READ.iter().filter(|name| !is_read(name)).collect();
        assert_eq!(unread, Vec::<&&str>::new(), "they belong into UNREAD");
        let read: Vec<_> = UNREAD.iter().filter(|(name, _)| is_read(name)).collect();
        assert_eq!(
            read,
            Vec::<&(&str, Option<&str>)>::new(),
            "they do not belong into UNREAD"
        );
    }

    #[test]
    fn set_but_unread_variables_are_reported() {
        let variables = [
            ("JWT_POLICY", "first-party-jwt"),
            ("PKCS8_KEY", "true"),
            ("CREDENTIAL_IDENTITY_PROVIDER", ""),
        ];
        assert_eq!(ignored(&variables.into_iter().collect()), ["JWT_POLICY"]);
    }
}
