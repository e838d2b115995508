//! Endpoint pickers of InferencePools: called by Envoy's external processing filter, per route, and
//! used by the load balancing of the pool's cluster.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::cluster::v3::LoadBalancingPolicy;
use navarch_proto::envoy::config::cluster::v3::load_balancing_policy::Policy;
use navarch_proto::envoy::config::core::v3::{GrpcService, TypedExtensionConfig, grpc_service};
use navarch_proto::envoy::extensions::filters::http::ext_proc::v3::processing_mode::{
    BodySendMode, HeaderSendMode,
};
use navarch_proto::envoy::extensions::filters::http::ext_proc::v3::{
    ExtProcOverrides, ExtProcPerRoute, ExternalProcessor, MetadataOptions, ProcessingMode,
    ext_proc_per_route, metadata_options,
};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use navarch_proto::envoy::extensions::load_balancing_policies::override_host::v3::OverrideHost;
use navarch_proto::envoy::extensions::load_balancing_policies::override_host::v3::override_host::OverrideHostSource;
use navarch_proto::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use navarch_proto::envoy::r#type::metadata::v3::MetadataKey;
use navarch_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use prost_types::Any;

use super::http;
use crate::gateway_api::EndpointPicker;
use crate::names::OutboundCluster;
use navarch_api::gateway_api::{POOL_SEMANTICS, SEMANTICS_LABEL};
use navarch_api::names::Hostname;
use navarch_registry::model::Service;

/// The name of the filter.
pub(crate) const FILTER: &str = "envoy.filters.http.ext_proc";
/// The metadata namespace of picked endpoints.
const NAMESPACE: &str = "envoy.lb";
/// The key of the picked endpoint.
const PICKED: &str = "x-gateway-destination-endpoint";
/// The key of the endpoint that served the request.
const SERVED: &str = "x-gateway-destination-endpoint-served";
/// Timeout of the picker, if a route sets none. No route does.
const TIMEOUT_SECONDS: i64 = 10;
/// Timeout of one message: long enough for a model's response.
const MESSAGE_TIMEOUT_SECONDS: i64 = 1000;

/// Whether a service is generated for an InferencePool.
#[must_use]
pub(crate) fn is_pool(service: &Service) -> bool {
    service
        .labels
        .get(SEMANTICS_LABEL)
        .is_some_and(|semantics| **semantics == *POOL_SEMANTICS)
}

/// The filter, disabled by default; routes enable it with their picker.
#[must_use]
pub(crate) fn filter() -> HttpFilter {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let namespaces = || {
        Some(metadata_options::MetadataNamespaces {
            untyped: vec![NAMESPACE.to_owned()],
            ..Default::default()
        })
    };

    let config = ExternalProcessor {
        grpc_service: Some(GrpcService {
            timeout: seconds(TIMEOUT_SECONDS),
            ..service("dummy".to_owned())
        }),
        failure_mode_allow: true,
        processing_mode: Some(ProcessingMode {
            request_header_mode: HeaderSendMode::Skip.into(),
            response_header_mode: HeaderSendMode::Skip.into(),
            ..ProcessingMode::default()
        }),
        message_timeout: seconds(MESSAGE_TIMEOUT_SECONDS),
        metadata_options: Some(MetadataOptions {
            forwarding_namespaces: namespaces(),
            receiving_namespaces: namespaces(),
            ..MetadataOptions::default()
        }),
        ..ExternalProcessor::default()
    };

    http::filter(FILTER, &config)
}

/// The per-route configuration with the picker. The whole request is sent, since the body contains
/// the model.
#[must_use]
pub(crate) fn per_route(picker: &EndpointPicker) -> Any {
    let cluster = OutboundCluster::new(
        picker.port.parse().unwrap_or_default(),
        "",
        &Hostname::new(&picker.host),
    );

    let overrides = ExtProcOverrides {
        failure_mode_allow: Some(picker.fails_open),
        grpc_service: Some(service(cluster.to_string())),
        processing_mode: Some(ProcessingMode {
            request_header_mode: HeaderSendMode::Send.into(),
            request_body_mode: BodySendMode::FullDuplexStreamed.into(),
            request_trailer_mode: HeaderSendMode::Send.into(),
            response_header_mode: HeaderSendMode::Send.into(),
            response_body_mode: BodySendMode::FullDuplexStreamed.into(),
            response_trailer_mode: HeaderSendMode::Send.into(),
        }),
        ..ExtProcOverrides::default()
    };

    pack(&ExtProcPerRoute {
        r#override: Some(ext_proc_per_route::Override::Overrides(overrides)),
    })
}

/// A gRPC service by its cluster.
fn service(cluster_name: String) -> GrpcService {
    let envoy = grpc_service::EnvoyGrpc {
        cluster_name,
        ..grpc_service::EnvoyGrpc::default()
    };
    GrpcService {
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(envoy)),
        ..GrpcService::default()
    }
}

/// Uses the picked endpoint; round robin without one.
#[must_use]
pub(crate) fn load_balancing() -> LoadBalancingPolicy {
    let policy = |name: &str, config: Any| LoadBalancingPolicy {
        policies: vec![Policy {
            typed_extension_config: Some(TypedExtensionConfig {
                name: format!("envoy.load_balancing_policies.{name}"),
                typed_config: Some(config),
            }),
        }],
    };

    let key = |name: &str| MetadataKey {
        key: NAMESPACE.to_owned(),
        path: vec![PathSegment {
            segment: Some(path_segment::Segment::Key(name.to_owned())),
        }],
    };

    let config = OverrideHost {
        override_host_sources: vec![OverrideHostSource {
            metadata: Some(key(PICKED)),
            ..OverrideHostSource::default()
        }],
        fallback_policy: Some(policy("round_robin", pack(&RoundRobin::default()))),
        selected_host_key: Some(key(SERVED)),
    };

    policy("override_host", pack(&config))
}
