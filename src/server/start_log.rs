//! The log line of the start.

use super::Config;

/// Logs the start: the release, the cluster and the addresses.
pub(super) fn log_start(config: &Config, sources: &str) {
    let ports = [
        ("http", config.http),
        ("grpc", config.grpc),
        ("secure-grpc", config.secure),
        ("https", config.https),
        ("monitoring", config.monitoring),
    ];
    let addresses: Vec<_> = ports.iter().map(|(name, address)| format!("{name}={address}")).collect();
    let revision = if config.webhooks.revision.is_empty() { "default" } else { &config.webhooks.revision };
    let (cluster, namespace) = (config.settings.cluster_id.as_str(), config.settings.system_namespace.as_str());
    let (version, addresses) = (config.build.version, addresses.join(" "));
    tracing::info!(version, revision, cluster, namespace, sources, addresses, "started");
}
