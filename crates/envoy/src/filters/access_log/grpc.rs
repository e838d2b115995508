//! Access logs to a gRPC service.

use navarch_proto::envoy::config::accesslog::v3::AccessLog;
use navarch_proto::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};

use crate::filters::access_logger::{grpc_destination, log};
use crate::filters::provider::ProviderCluster;
use navarch_api::mesh::{EnvoyHttpGrpcV3LogProvider, EnvoyTcpGrpcV3LogProvider};

/// Filter state objects with peer metadata.
const PEERS: [&str; 2] = ["upstream_peer", "downstream_peer"];

/// The same, including the names of proxies before 1.24.
pub(super) const PEERS_OF_ALL_VERSIONS: [&str; 6] = [
    "upstream_peer",
    "downstream_peer",
    "wasm.upstream_peer",
    "wasm.upstream_peer_id",
    "wasm.downstream_peer",
    "wasm.downstream_peer_id",
];

/// The log of requests to the service of the proxy's configuration.
pub(super) fn http_service() -> AccessLog {
    http_log(&HttpGrpcAccessLogConfig {
        common_config: Some(grpc_destination(
            "http_envoy_accesslog",
            &bootstrap_cluster(),
            &PEERS_OF_ALL_VERSIONS,
        )),
        ..HttpGrpcAccessLogConfig::default()
    })
}

/// The log of connections to the service of the proxy's configuration, under this name.
pub(super) fn tcp_service(name: &str) -> AccessLog {
    tcp_log(grpc_destination(
        name,
        &bootstrap_cluster(),
        &PEERS_OF_ALL_VERSIONS,
    ))
}

/// The log of requests to a provider.
pub(super) fn http_provider(
    provider: &EnvoyHttpGrpcV3LogProvider,
    cluster: &ProviderCluster,
) -> AccessLog {
    let name = non_empty(&provider.log_name, "http_envoy_accesslog");
    http_log(&HttpGrpcAccessLogConfig {
        common_config: Some(provider_common(
            name,
            cluster,
            &provider.filter_state_objects_to_log,
        )),
        additional_request_headers_to_log: provider.additional_request_headers_to_log.clone(),
        additional_response_headers_to_log: provider.additional_response_headers_to_log.clone(),
        additional_response_trailers_to_log: provider.additional_response_trailers_to_log.clone(),
    })
}

/// The log of connections to a provider.
pub(super) fn tcp_provider(
    provider: &EnvoyTcpGrpcV3LogProvider,
    cluster: &ProviderCluster,
) -> AccessLog {
    let name = non_empty(&provider.log_name, "tcp_envoy_accesslog");
    tcp_log(provider_common(
        name,
        cluster,
        &provider.filter_state_objects_to_log,
    ))
}

/// `text`, or `default` if it is empty.
pub(super) fn non_empty<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

/// The log destination and content for a provider.
fn provider_common(
    name: &str,
    cluster: &ProviderCluster,
    state: &[String],
) -> CommonGrpcAccessLogConfig {
    let mut config = grpc_destination(name, cluster, &PEERS);
    if !state.is_empty() {
        config.filter_state_objects_to_log = state.to_vec();
    }
    config
}

/// The cluster of `envoyAccessLogService` in the proxy's bootstrap.
fn bootstrap_cluster() -> ProviderCluster {
    ProviderCluster {
        host: String::new(),
        cluster: "envoy_accesslog_service".to_owned(),
    }
}

/// A log of requests.
fn http_log(config: &HttpGrpcAccessLogConfig) -> AccessLog {
    log("envoy.access_loggers.http_grpc", config)
}

/// A log of connections.
fn tcp_log(common: CommonGrpcAccessLogConfig) -> AccessLog {
    log(
        "envoy.tcp_grpc_access_log",
        &TcpGrpcAccessLogConfig {
            common_config: Some(common),
        },
    )
}
