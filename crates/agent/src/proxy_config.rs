//! The effective `ProxyConfig`: defaults, overridden by mesh config, environment and annotation, in
//! this order.

use std::collections::BTreeMap;

use super::downward_api;
use navarch_api::mesh::{MeshConfig, ProxyConfig};
use navarch_api::status_port;

/// The annotation with a pod's own proxy config.
const CONFIG_ANNOTATION: &str = "proxy.istio.io/config";

/// The sources of the effective config.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources<'a> {
    /// The text of the mesh config, if there is a file.
    pub mesh: Option<&'a str>,
    /// The value of `PROXY_CONFIG`.
    pub environment: &'a str,
    /// The pod's annotations.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// The deprecated flag for the service cluster.
    pub service_cluster: &'a str,
    /// The deprecated flag for the number of threads; 0 if it is not set.
    pub concurrency: i32,
    /// Number of processors of the container; 0 if unknown.
    pub cpu_limit: i32,
}

/// Errors of computing the effective config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyConfigError {
    /// A source cannot be parsed.
    #[error("failed to parse the {place}: {reason}")]
    Text {
        /// Such as `mesh config` or `variable PROXY_CONFIG`.
        place: &'static str,
        /// The parser's message, with the field if it is known.
        reason: String,
    },
    /// A setting is invalid.
    #[error("proxy config: {0}")]
    Setting(&'static str),
}

/// Merges the sources.
///
/// # Errors
/// If a source cannot be parsed, or the result is invalid.
pub fn effective(sources: &ConfigSources<'_>) -> Result<ProxyConfig, ProxyConfigError> {
    let annotation = |name: &str| {
        sources
            .annotations
            .and_then(|annotations| annotations.get(name))
    };
    let mut config = ProxyConfig::istio_defaults();

    if let Some(text) = sources.mesh.filter(|text| !text.is_empty()) {
        let mesh = MeshConfig::istio_defaults()
            .apply(text)
            .map_err(fault("mesh config"))?;
        config = mesh.value.default_config;
    }

    if !sources.environment.is_empty() {
        config = config
            .apply(sources.environment)
            .map_err(fault("variable PROXY_CONFIG"))?
            .value;
    }

    if let Some(text) = annotation(CONFIG_ANNOTATION).filter(|text| !text.is_empty()) {
        config = config
            .apply(text)
            .map_err(fault("annotation proxy.istio.io/config"))?
            .value;
    }

    if config.concurrency.is_none() && sources.cpu_limit != 0 {
        config.concurrency = Some(sources.cpu_limit);
    }

    if sources.concurrency != 0 {
        config.concurrency = Some(sources.concurrency);
    }

    if config.service_cluster.as_deref() == Some("") {
        config.service_cluster = Some(sources.service_cluster.to_owned());
    }

    check(&config)?;
    if let Some(address) = annotation("sidecar.istio.io/discoveryAddress") {
        config.discovery_address.clone_from(address);
    }

    if let Some(port) = annotation(status_port::ANNOTATION) {
        config.status_port = port.parse().unwrap_or_else(|_| {
            tracing::error!(
                annotation = status_port::ANNOTATION,
                value = port,
                "annotation is not a port number"
            );
            0
        });
    }

    Ok(config)
}

/// The error of a source.
fn fault<E: std::fmt::Display>(place: &'static str) -> impl Fn(E) -> ProxyConfigError {
    move |error| ProxyConfigError::Text {
        place,
        reason: error.to_string(),
    }
}

/// Checks the settings that Envoy cannot start without.
fn check(config: &ProxyConfig) -> Result<(), ProxyConfigError> {
    let port = |port: i32| u16::try_from(port).is_ok_and(|port| port != 0);
    let named = config.tracing_service_name.is_some()
        || config
            .service_cluster
            .as_ref()
            .is_some_and(|name| !name.is_empty());
    let whole_seconds =
        |span: navarch_api::duration::Duration| span.as_nanos() % 1_000_000_000 == 0;

    let checks = [
        (!config.config_path.is_empty(), "configPath must be set"),
        (!config.binary_path.is_empty(), "binaryPath must be set"),
        (named, "serviceCluster or tracingServiceName must be set"),
        (
            config
                .drain_duration
                .is_some_and(|drain| drain.as_nanos() > 0 && whole_seconds(drain)),
            "drainDuration must be a whole number of seconds, at least 1",
        ),
        (
            downward_api::is_host_and_port(&config.discovery_address),
            "discoveryAddress must be host:port",
        ),
        (
            port(config.proxy_admin_port),
            "proxyAdminPort must be a port",
        ),
        (port(config.status_port), "statusPort must be a port"),
    ];

    match checks.into_iter().find(|(holds, _)| !holds) {
        Some((_, message)) => Err(ProxyConfigError::Setting(message)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_sources_count_more_and_metadata_adds_up() {
        let annotations = BTreeMap::from([
            (
                CONFIG_ANNOTATION.to_owned(),
                "{concurrency: 3, proxyMetadata: {B: '2'}}".to_owned(),
            ),
            (
                "status.sidecar.istio.io/port".to_owned(),
                "15999".to_owned(),
            ),
        ]);

        let config = effective(&ConfigSources {
            mesh: Some("defaultConfig: {concurrency: 1, drainDuration: 10s}"),
            environment: "{concurrency: 2, proxyMetadata: {A: '1'}}",
            annotations: Some(&annotations),
            cpu_limit: 8,
            ..ConfigSources::default()
        })
        .unwrap();
        assert_eq!((config.concurrency, config.status_port), (Some(3), 15999));
        assert_eq!(config.proxy_metadata.len(), 2);
        assert_eq!(config.drain_duration.unwrap().as_secs(), 10);
    }

    #[test]
    fn concurrency_defaults_to_the_cpu_limit() {
        let config = effective(&ConfigSources {
            cpu_limit: 2,
            ..ConfigSources::default()
        })
        .unwrap();
        assert_eq!(config.concurrency, Some(2));
        let fault = effective(&ConfigSources {
            environment: "discoveryAddress: istiod",
            ..ConfigSources::default()
        });
        assert_eq!(
            fault,
            Err(ProxyConfigError::Setting(
                "discoveryAddress must be host:port"
            ))
        );
    }
}
