//! Tracers of extension providers.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::HttpService;
use navarch_proto::envoy::config::trace::v3::zipkin_config::{CollectorEndpointVersion, TraceContextOption as Context};
use navarch_proto::envoy::config::trace::v3::{DatadogConfig, SkyWalkingConfig, ZipkinConfig, tracing};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use prost::{Message, Name};

use super::{headers, open_telemetry};
use crate::filters::istio_version;
use crate::filters::provider::{ProviderCluster, cluster, http_uri};
use navarch_api::duration::Duration;
use navarch_api::mesh::{ExtensionProvider, TraceContextOption, ZipkinTracingProvider};
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;

/// A provider's tracer in an HTTP connection manager.
pub(super) struct Chosen {
    /// Settings from the provider only.
    pub(super) config: Tracing,
    /// Whether the tracer's own sampler decides.
    pub(super) samples_itself: bool,
}

/// Default timeout of a Zipkin collector.
const ZIPKIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The tracer of a provider; `None` if it has none, or its service is unknown.
pub(super) fn configure(view: &View<'_>, provider: &ExtensionProvider) -> Option<Chosen> {
    let (tracer, max_tag_length, samples_itself) = if let Some(zipkin) = &provider.zipkin {
        let target = cluster(view, "zipkin", &zipkin.service, zipkin.port)?;
        (
            tracer("envoy.tracers.zipkin", &zipkin_config(view, zipkin, target)),
            zipkin.max_tag_length,
            false,
        )
    } else if let Some(datadog) = &provider.datadog {
        let target = cluster(view, "datadog", &datadog.service, datadog.port)?;
        let config = DatadogConfig {
            collector_cluster: target.cluster,
            collector_hostname: target.host,
            service_name: view.proxy().service_cluster().to_string(),
            ..DatadogConfig::default()
        };
        (
            tracer("envoy.tracers.datadog", &config),
            datadog.max_tag_length,
            false,
        )
    } else if let Some(skywalking) = &provider.skywalking {
        let target = cluster(view, "skywalking", &skywalking.service, skywalking.port)?;
        let config = SkyWalkingConfig {
            grpc_service: Some(target.grpc_service()),
            ..SkyWalkingConfig::default()
        };
        (tracer("envoy.tracers.skywalking", &config), 0, false)
    } else {
        let collector = provider.opentelemetry.as_ref()?;
        let config = open_telemetry::config(view, collector)?;
        let tracer = tracer("envoy.tracers.opentelemetry", &config);
        (tracer, collector.max_tag_length, config.sampler.is_some())
    };

    let spawns_span = provider.skywalking.is_some() || view.proxy().kind() == ProxyKind::Router;
    let config = Tracing {
        provider: Some(tracer),
        spawn_upstream_span: spawns_span.then_some(true),
        max_path_tag_length: (max_tag_length != 0).then_some(max_tag_length),
        ..Tracing::default()
    };

    Some(Chosen {
        config,
        samples_itself,
    })
}

/// A tracer with this name and configuration.
fn tracer<M: Message + Name>(name: &str, config: &M) -> tracing::Http {
    tracing::Http {
        name: name.to_owned(),
        config_type: Some(tracing::http::ConfigType::TypedConfig(pack(config))),
    }
}

/// Zipkin. Settings that old proxies do not support are omitted, or in their older form.
#[allow(
    deprecated,
    reason = "proxies before 1.29 read the fields that are deprecated by now"
)]
fn zipkin_config(
    view: &View<'_>,
    zipkin: &ZipkinTracingProvider,
    target: ProviderCluster,
) -> ZipkinConfig {
    let path = if zipkin.path.is_empty() {
        "/api/v2/spans"
    } else {
        &zipkin.path
    };

    let mut config = ZipkinConfig {
        collector_endpoint_version: CollectorEndpointVersion::HttpJson.into(),
        trace_id_128bit: !zipkin.enable_64bit_trace_id,
        shared_span_context: Some(false),
        ..ZipkinConfig::default()
    };

    if istio_version::at_least(view, 1, 29) {
        let timeout = zipkin.timeout.unwrap_or(ZIPKIN_TIMEOUT);
        config.collector_service = Some(HttpService {
            http_uri: Some(http_uri(
                format!("http://{}{path}", target.host),
                &target.cluster,
                Some(timeout),
            )),
            request_headers_to_add: headers::of_requests(view, &zipkin.headers),
            ..HttpService::default()
        });
    } else {
        config.collector_cluster = target.cluster;
        config.collector_endpoint = path.to_owned();
        config.collector_hostname = target.host;
    }

    if istio_version::at_least(view, 1, 28) {
        config.trace_context_option = match zipkin.trace_context_option {
            TraceContextOption::UseB3 => Context::UseB3,
            TraceContextOption::UseB3WithW3cPropagation => Context::UseB3WithW3cPropagation,
        }
        .into();
    }

    config
}
