//! Endpoint pickers of InferencePools: called by Envoy's external processing filter, per route, and
//! used by the load balancing of the pool's cluster.

use std::collections::BTreeMap;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::cluster::v3::LoadBalancingPolicy;
use navarch_proto::envoy::config::cluster::v3::load_balancing_policy::Policy;
use navarch_proto::envoy::config::core::v3::{GrpcService, TypedExtensionConfig, grpc_service};
use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::{Route, route};
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
use crate::gateway_api::{EndpointPicker, RulePickers};
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

/// Sets the pickers of a route's destinations. Each of several destinations has its own, as a picker
/// knows the endpoints of its pool alone; istiod has the last one pick for all of them.
pub(crate) fn set_pickers(route: &mut Route, pickers: &RulePickers) {
    if let [picker] = pickers.as_slice() {
        set_picker(&mut route.typed_per_filter_config, picker.as_ref());
        return;
    }

    let Some(route::Action::Route(action)) = &mut route.action else {
        return;
    };
    let Some(ClusterSpecifier::WeightedClusters(weighted)) = &mut action.cluster_specifier else {
        return;
    };
    for (cluster, picker) in weighted.clusters.iter_mut().zip(pickers) {
        set_picker(&mut cluster.typed_per_filter_config, picker.as_ref());
    }
}

/// Sets the picker in the configurations of filters of a route or of one of its clusters.
fn set_picker(configs: &mut BTreeMap<String, Any>, picker: Option<&EndpointPicker>) {
    if let Some(picker) = picker {
        configs.insert(FILTER.to_owned(), per_route(picker));
    }
}

/// The configuration of a route or of one of its clusters, with the picker. The whole request is
/// sent, since the body contains the model.
#[must_use]
fn per_route(picker: &EndpointPicker) -> Any {
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

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::route::v3::weighted_cluster::ClusterWeight;
    use navarch_proto::envoy::config::route::v3::{RouteAction, WeightedCluster};

    use super::*;

    fn picker(host: &str) -> Option<EndpointPicker> {
        Some(EndpointPicker {
            host: host.to_owned(),
            port: "9002".to_owned(),
            fails_open: true,
        })
    }

    fn route(clusters: &[&str]) -> Route {
        let clusters = clusters.iter().map(|name| ClusterWeight {
            name: (*name).to_owned(),
            ..ClusterWeight::default()
        });
        let weighted = WeightedCluster {
            clusters: clusters.collect(),
            ..WeightedCluster::default()
        };

        Route {
            action: Some(route::Action::Route(RouteAction {
                cluster_specifier: Some(ClusterSpecifier::WeightedClusters(weighted)),
                ..RouteAction::default()
            })),
            ..Route::default()
        }
    }

    #[test]
    fn each_of_several_pools_has_its_own_picker() {
        let mut several = route(&["llama", "web", "phi"]);
        set_pickers(&mut several, &vec![picker("one"), None, picker("other")]);

        assert!(several.typed_per_filter_config.is_empty());
        let Some(route::Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::WeightedClusters(weighted)),
            ..
        })) = several.action
        else {
            panic!("{several:?}")
        };
        let configs: Vec<_> = weighted
            .clusters
            .iter()
            .map(|cluster| cluster.typed_per_filter_config.get(FILTER).cloned())
            .collect();
        let expected = |host| picker(host).as_ref().map(per_route);
        assert_eq!(configs, [expected("one"), None, expected("other")]);
    }

    #[test]
    fn the_picker_of_an_only_pool_is_that_of_the_route() {
        let mut one = route(&[]);
        set_pickers(&mut one, &vec![picker("one")]);

        let config = one.typed_per_filter_config.get(FILTER);
        assert_eq!(config, picker("one").as_ref().map(per_route).as_ref());
    }
}
