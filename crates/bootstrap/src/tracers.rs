//! The tracing provider of the bootstrap.

use serde_json::{Value, json};

use super::{BootstrapError, BootstrapInput, RequiredFile, service_name};
use crate::go_path;
use navarch_api::mesh::{ProxyConfig, Tracing};

/// A tracer with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracer<'a> {
    /// Zipkin, or a Zipkin-compatible collector.
    Zipkin(&'a str),
    Lightstep(&'a str),
    /// Datadog's agent.
    Datadog(&'a str),
}

impl<'a> Tracer<'a> {
    /// The tracer of a proxy config. The control plane configures all other tracers per listener.
    pub(super) fn of(config: &'a ProxyConfig) -> Option<Self> {
        let tracing = config.tracing.as_ref()?;
        let zipkin = tracing
            .zipkin
            .as_ref()
            .map(|zipkin| Self::Zipkin(&zipkin.address));
        let lightstep = || {
            tracing
                .lightstep
                .as_ref()
                .map(|lightstep| Self::Lightstep(&lightstep.address))
        };

        let datadog = || {
            tracing
                .datadog
                .as_ref()
                .map(|datadog| Self::Datadog(&datadog.address))
        };

        zipkin
            .or_else(lightstep)
            .or_else(datadog)
            .filter(|tracer| !tracer.address().is_empty())
    }

    pub(super) fn address(self) -> &'a str {
        match self {
            Self::Zipkin(address) | Self::Lightstep(address) | Self::Datadog(address) => address,
        }
    }
}

pub(super) fn tracer(input: &BootstrapInput<'_>) -> Result<Option<Value>, BootstrapError> {
    if input
        .config
        .tracing
        .as_ref()
        .is_some_and(|tracing| tracing.stackdriver.is_some())
        && !has_project(input)
    {
        return Err(BootstrapError::NoProject);
    }
    let (name, message, mut config) = match Tracer::of(input.config) {
        None => return Ok(None),
        Some(Tracer::Zipkin(_)) => (
            "zipkin",
            "ZipkinConfig",
            json!({
                "collector_cluster": "zipkin",
                "collector_endpoint": "/api/v2/spans",
                "collector_endpoint_version": "HTTP_JSON",
                "trace_id_128bit": true,
                "shared_span_context": false,
            }),
        ),
        Some(Tracer::Lightstep(_)) => (
            "lightstep",
            "LightstepConfig",
            json!({ "collector_cluster": "lightstep", "access_token_file": token_path(input.config) }),
        ),
        Some(Tracer::Datadog(_)) => {
            let service = service_name::service_cluster(input.node, input.config);
            (
                "datadog",
                "DatadogConfig",
                json!({ "collector_cluster": "datadog_agent", "service_name": service }),
            )
        }
    };

    if let Some(config) = config.as_object_mut() {
        config.insert(
            "@type".to_owned(),
            format!("type.googleapis.com/envoy.config.trace.v3.{message}").into(),
        );
    }

    Ok(Some(
        json!({ "http": { "name": format!("envoy.tracers.{name}"), "typed_config": config } }),
    ))
}

/// Whether the platform metadata contains a project.
fn has_project(input: &BootstrapInput<'_>) -> bool {
    let platform = input.node.metadata.get("PLATFORM_METADATA");
    platform
        .and_then(|metadata| metadata.get("gcp_project"))
        .is_some()
}

/// The path of Lightstep's access token.
fn token_path(config: &ProxyConfig) -> String {
    go_path::join(&config.config_path, "lightstep_access_token.txt")
}

/// The file with Lightstep's access token.
pub(super) fn token_file(config: &ProxyConfig) -> Option<RequiredFile> {
    let lightstep = |tracing: &Tracing| {
        tracing
            .lightstep
            .clone()
            .filter(|_| tracing.zipkin.is_none())
    };
    let lightstep = config.tracing.as_ref().and_then(lightstep)?;
    Some(RequiredFile {
        path: token_path(config),
        content: lightstep.access_token,
    })
}
