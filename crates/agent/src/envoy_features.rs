//! Detects features of the installed Envoy that not all builds have.
//!
//! Envoy itself reports all of its extensions to the control plane (`node.extensions`), so only the
//! bootstrap must be adapted by the agent. The only part of the bootstrap that a stock Envoy lacks
//! is Istio's workload discovery, and it rejects a bootstrap with it. So if discovery is needed,
//! Envoy is run once with `--mode validate` and a bootstrap that contains little else. Version and
//! build name cannot be used instead: they are the same for both builds.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Timeout of the validation; Envoy needs a tenth of a second.
const ENVOY_TIMEOUT: Duration = Duration::from_secs(10);

/// A bootstrap with Istio's workload discovery and one of Istio's filters, which every build with
/// the discovery has: validation looks at extensions of the bootstrap only since Envoy 1.38.
const PROBE: &str = r#"{
  "node": { "id": "probe", "cluster": "probe" },
  "bootstrap_extensions": [{
    "name": "metadata_discovery",
    "typed_config": {
      "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
      "type_url": "type.googleapis.com/istio.workload.BootstrapExtension",
      "value": { "config_source": { "ads": {} } }
    }
  }],
  "static_resources": {
    "clusters": [{ "name": "probe", "type": "STATIC", "connect_timeout": "1s" }],
    "listeners": [{
      "name": "probe",
      "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
      "filter_chains": [{ "filters": [
        {
          "name": "istio.metadata_exchange",
          "typed_config": {
            "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
            "type_url": "type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange",
            "value": { "protocol": "istio-peer-exchange" }
          }
        },
        {
          "name": "envoy.filters.network.tcp_proxy",
          "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "probe",
            "cluster": "probe"
          }
        }
      ] }]
    }]
  }
}"#;

/// A bootstrap with an access log that has a tag with a format.
const LOG_PROBE: &str = r#"{
  "node": { "id": "probe", "cluster": "probe" },
  "static_resources": {
    "clusters": [{ "name": "probe", "type": "STATIC", "connect_timeout": "1s" }],
    "listeners": [{
      "name": "probe",
      "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
      "filter_chains": [{ "filters": [{
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
          "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
          "stat_prefix": "probe",
          "cluster": "probe",
          "access_log": [{
            "name": "envoy.access_loggers.tcp_grpc",
            "typed_config": {
              "@type": "type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
              "common_config": {
                "log_name": "probe",
                "transport_api_version": "V3",
                "grpc_service": { "envoy_grpc": { "cluster_name": "probe" } },
                "custom_tags": [{ "tag": "peer", "value": "%UPSTREAM_PEER_URI_SAN%" }]
              }
            }
          }]
        }
      }] }]
    }]
  }
}"#;

/// The features of an Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Whether it supports peer discovery (`istio.workload.BootstrapExtension`).
    pub workload_discovery: bool,
}

impl Features {
    /// The features of Istio's build.
    pub const ISTIO: Self = Self {
        workload_discovery: true,
    };

    /// The features of a build without Istio's extensions.
    pub const STOCK: Self = Self {
        workload_discovery: false,
    };

    /// Detects the features of a program. If it does not run, it counts as stock.
    pub async fn of_program(program: &Path) -> Self {
        let loads = loads(program, PROBE).await;
        tracing::info!(
            workload_discovery = loads,
            "checked whether Envoy has Istio's extensions"
        );
        if loads { Self::ISTIO } else { Self::STOCK }
    }

    /// Whether the program supports tags with formats in gRPC access logs.
    pub async fn writes_tags(program: &Path) -> bool {
        let loads = loads(program, LOG_PROBE).await;
        tracing::info!(
            loads,
            "checked whether Envoy supports formatted tags in access logs"
        );
        loads
    }
}

/// Whether the program accepts a bootstrap.
async fn loads(program: &Path, bootstrap: &str) -> bool {
    let mut command = Command::new(program);
    command.args([
        "--mode",
        "validate",
        "-l",
        "off",
        "--disable-hot-restart",
        "--config-yaml",
        bootstrap,
    ]);

    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);

    match tokio::time::timeout(ENVOY_TIMEOUT, command.status()).await {
        Ok(Ok(status)) => status.success(),
        Ok(Err(_)) | Err(_) => false,
    }
}
