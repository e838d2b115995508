//! Access logs of any logger, and the settings that those of gRPC services share.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::accesslog::v3::{AccessLog, access_log};
use navarch_proto::envoy::config::core::v3::ApiVersion;
use navarch_proto::envoy::extensions::access_loggers::grpc::v3::CommonGrpcAccessLogConfig;
use prost::{Message, Name};

use super::provider::ProviderCluster;

/// An access log of the logger with this name and configuration.
pub(super) fn log<M: Message + Name>(name: &str, config: &M) -> AccessLog {
    AccessLog {
        name: name.to_owned(),
        config_type: Some(access_log::ConfigType::TypedConfig(pack(config))),
        ..AccessLog::default()
    }
}

/// The destination of a log to a gRPC service, and the filter state objects in its entries.
pub(super) fn grpc_destination(
    name: &str,
    cluster: &ProviderCluster,
    state: &[&str],
) -> CommonGrpcAccessLogConfig {
    CommonGrpcAccessLogConfig {
        log_name: name.to_owned(),
        grpc_service: Some(cluster.grpc_service()),
        transport_api_version: ApiVersion::V3.into(),
        filter_state_objects_to_log: state.iter().map(|&name| name.to_owned()).collect(),
        ..CommonGrpcAccessLogConfig::default()
    }
}
