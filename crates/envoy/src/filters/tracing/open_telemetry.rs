//! Traces to an OpenTelemetry collector.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::{GrpcService, HttpService, TypedExtensionConfig};
use navarch_proto::envoy::config::trace::v3::OpenTelemetryConfig;
use navarch_proto::envoy::extensions::tracers::opentelemetry::resource_detectors::v3::{
    DynatraceResourceDetectorConfig, EnvironmentResourceDetectorConfig,
};
use navarch_proto::envoy::extensions::tracers::opentelemetry::samplers::v3::DynatraceSamplerConfig;

use super::headers;
use crate::filters::provider::{ProviderCluster, cluster, http_uri};
use crate::node_annotations::{TRACED_SERVICE, annotation};
use navarch_api::duration::Duration;
use navarch_api::mesh::{
    DynatraceSampler, OpenTelemetryTracingProvider, ServiceAttributeEnrichment,
};
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The service name of the proxy by OpenTelemetry's conventions for Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServiceName;

/// The tracer of a provider; `None` if its service, or that of the sampler, is unknown.
pub(super) fn config(
    view: &View<'_>,
    provider: &OpenTelemetryTracingProvider,
) -> Option<OpenTelemetryConfig> {
    let target = cluster(view, "opentelemetry", &provider.service, provider.port)?;
    let by_conventions = provider.service_attribute_enrichment
        == ServiceAttributeEnrichment::OtelSemanticConventions;
    let mut config = OpenTelemetryConfig {
        service_name: if by_conventions {
            view.derived(&ServiceName).to_string()
        } else {
            view.proxy().service_cluster().to_string()
        },
        resource_detectors: detectors(provider, by_conventions),
        ..OpenTelemetryConfig::default()
    };

    if let Some(http) = &provider.http {
        config.http_service = Some(HttpService {
            http_uri: Some(http_uri(
                join(&target.host, &http.path),
                &target.cluster,
                http.timeout,
            )),
            request_headers_to_add: headers::of_requests(view, &http.headers),
            ..HttpService::default()
        });
    } else {
        let grpc = provider.grpc.as_ref();
        config.grpc_service = Some(GrpcService {
            timeout: grpc.and_then(|grpc| grpc.timeout).map(Duration::to_proto),
            initial_metadata: grpc
                .map(|grpc| headers::of_calls(view, &grpc.initial_metadata))
                .unwrap_or_default(),
            ..target.grpc_service()
        });
    }

    if let Some(sampler) = &provider.dynatrace_sampler {
        config.sampler = Some(dynatrace(view, provider, sampler, &target)?);
    }

    Some(config)
}

/// The resource detectors. The conventions need the proxy's environment.
fn detectors(
    provider: &OpenTelemetryTracingProvider,
    by_conventions: bool,
) -> Vec<TypedExtensionConfig> {
    let named = |name: &str, config| TypedExtensionConfig {
        name: format!("envoy.tracers.opentelemetry.resource_detectors.{name}"),
        typed_config: Some(config),
    };
    let environment = || named("environment", pack(&EnvironmentResourceDetectorConfig {}));
    let chosen = provider.resource_detectors.clone().unwrap_or_default();
    let mut detectors = Vec::new();
    if chosen.environment.is_some() {
        detectors.push(environment());
    }

    if chosen.dynatrace.is_some() {
        detectors.push(named(
            "dynatrace",
            pack(&DynatraceResourceDetectorConfig {}),
        ));
    }

    if by_conventions && chosen.environment.is_none() {
        detectors.push(environment());
    }

    detectors
}

/// Dynatrace's sampler, with its own service or that of the collector.
fn dynatrace(
    view: &View<'_>,
    provider: &OpenTelemetryTracingProvider,
    sampler: &DynatraceSampler,
    collector: &ProviderCluster,
) -> Option<TypedExtensionConfig> {
    let (target, path, http) = match &sampler.http_service {
        None => (
            collector.clone(),
            "api/v2/samplingConfiguration",
            provider.http.clone()?,
        ),
        Some(api) => {
            let http = api.http.clone().unwrap_or_default();
            (
                cluster(view, "dynatrace", &api.service, api.port)?,
                "",
                http,
            )
        }
    };

    let path = if path.is_empty() {
        http.path.as_str()
    } else {
        path
    };

    let config = DynatraceSamplerConfig {
        tenant: sampler.tenant.clone(),
        cluster_id: sampler.cluster_id,
        root_spans_per_minute: sampler.root_spans_per_minute,
        http_service: Some(HttpService {
            http_uri: Some(http_uri(
                join(&target.host, path),
                &target.cluster,
                http.timeout,
            )),
            request_headers_to_add: headers::of_requests(view, &http.headers),
            ..HttpService::default()
        }),
    };

    Some(TypedExtensionConfig {
        name: "envoy.tracers.opentelemetry.samplers.dynatrace".to_owned(),
        typed_config: Some(pack(&config)),
    })
}

/// Joins host and path; empty and `.` segments are removed, and `..` removes the previous one.
fn join(host: &str, path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in host.split('/').chain(path.split('/')) {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let mut joined = segments.join("/");
    if path.ends_with('/') {
        joined.push('/');
    }
    joined
}

impl Query for ServiceName {
    type Value = String;

    fn compute(&self, view: &View<'_>) -> String {
        let proxy = view.proxy();
        let annotation = annotation(proxy, TRACED_SERVICE);

        let labels = proxy.labels();
        let label = |name: &str| labels.get(name).map(|value| value.to_string());
        let workload = || proxy.meta("WORKLOAD_NAME").map(|name| name.to_string());
        let pod = || proxy.name().split_once('.').map(|(pod, _)| pod.to_owned());
        let container = || {
            proxy
                .meta("APP_CONTAINERS")
                .filter(|names| !names.contains(','))
                .map(|name| name.to_string())
        };

        let some = |name: &String| !name.is_empty();
        annotation
            .filter(some)
            .or_else(|| label("app.kubernetes.io/instance").filter(some))
            .or_else(|| label("app.kubernetes.io/name").filter(some))
            .or_else(|| workload().filter(some))
            .or_else(|| pod().filter(some))
            .or_else(|| container().filter(some))
            .unwrap_or_else(|| "unknown_service".to_owned())
    }
}

impl ProxyQuery for ServiceName {}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn host_and_path_are_joined_with_one_slash() {
        for (path, expected) in [
            ("v1/traces", "otel.net/v1/traces"),
            ("/v1//traces/", "otel.net/v1/traces/"),
            ("", "otel.net"),
        ] {
            assert_eq!(join("otel.net", path), expected);
        }
    }
}
