//! What the Envoy at hand can do beyond, or short of, what every Envoy can.
//!
//! Envoy itself tells the control plane of all its extensions (`node.extensions`), so only the bootstrap, which no control
//! plane sees, is the agent's to fit. Of what the bootstrap may hold a stock Envoy lacks Istio's workload discovery alone;
//! it refuses a bootstrap with it. So where discovery is wanted, Envoy is asked once, with `--mode validate`, to load a
//! bootstrap that holds nothing else. Neither version nor build name tell as much: both are alike for both builds.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// How long Envoy may take to answer; it needs a tenth of a second.
const ENVOY_TIMEOUT: Duration = Duration::from_secs(10);

/// What is asked.
const PROBE: &str = r#"{
  "node": { "id": "probe", "cluster": "probe" },
  "bootstrap_extensions": [{
    "name": "metadata_discovery",
    "typed_config": {
      "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
      "type_url": "type.googleapis.com/istio.workload.BootstrapExtension",
      "value": { "config_source": { "ads": {} } }
    }
  }]
}"#;

/// What is asked of access logs: a bootstrap with one whose tag has a format.
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

/// What an Envoy can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Whether it learns of its peers by discovery (`istio.workload.BootstrapExtension`).
    pub workload_discovery: bool,
}

impl Features {
    /// Those of Istio's build.
    pub const ISTIO: Self = Self { workload_discovery: true };

    /// Those of a build without Istio's extensions.
    pub const STOCK: Self = Self { workload_discovery: false };

    /// Asks the program. One that does not answer counts as stock.
    pub async fn ask(program: &Path) -> Self {
        let loads = loads(program, PROBE).await;
        tracing::info!(workload_discovery = loads, "checked whether Envoy has Istio's extensions");
        if loads { Self::ISTIO } else { Self::STOCK }
    }

    /// Whether the program writes access logs over gRPC with tags in formats of its own.
    pub async fn writes_tags(program: &Path) -> bool {
        let loads = loads(program, LOG_PROBE).await;
        tracing::info!(loads, "checked whether Envoy supports formatted tags in access logs");
        loads
    }
}

/// Whether the program loads a bootstrap.
async fn loads(program: &Path, bootstrap: &str) -> bool {
    let mut command = Command::new(program);
    command.args(["--mode", "validate", "-l", "off", "--disable-hot-restart", "--config-yaml", bootstrap]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(ENVOY_TIMEOUT, command.status()).await {
        Ok(Ok(status)) => status.success(),
        Ok(Err(_)) | Err(_) => false,
    }
}
