//! Settings of the bootstrap besides the proxy config.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key of the node metadata in which an agent sends its settings when it requests a bootstrap.
/// They are not part of the node in the bootstrap.
pub const SETTINGS_KEY: &str = "NAVARCH_BOOTSTRAP";

/// Settings of the agent, and features of its Envoy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate variable of pilot-agent"
)]
pub struct Settings {
    /// `ENVOY_STATUS_PORT`: the port of Envoy's readiness listener.
    pub envoy_status_port: u16,
    /// `ENVOY_PROMETHEUS_PORT`: the port of Envoy's metrics.
    pub envoy_prometheus_port: u16,
    /// `ENVOY_SECURE_METRICS_PORT`: the port of Envoy's metrics over mTLS; 0 is off.
    pub secure_metrics_port: u16,
    /// `ENVOY_SECURE_MERGED_METRICS_PORT`: the port of all metrics over mTLS; 0 is off.
    pub secure_merged_metrics_port: u16,
    /// `ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL`.
    pub status_proxy_protocol: bool,
    /// `WORKLOAD_IDENTITY_SOCKET_FILE`: the name of the SDS socket.
    pub workload_identity_socket: String,
    /// `EXIT_ON_ZERO_ACTIVE_CONNECTIONS`: whether draining ends when no connection is left.
    pub exit_on_zero_active_connections: bool,
    /// `--outlierLogPath`.
    pub outlier_log_path: String,
    /// `ISTIO_DELTA_XDS`.
    pub delta: bool,
    /// `ISTIO_DUAL_STACK`.
    pub dual_stack: bool,
    /// `HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED`.
    pub strip_fragment: bool,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// `HOST_IP`: replaces `$(HOST_IP)` in tracer addresses.
    pub host_ip: String,
    /// `--log_as_json`.
    pub log_json: bool,
    /// Whether Envoy supports peer discovery (`istio.workload.BootstrapExtension`).
    pub workload_discovery: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            envoy_status_port: 15021,
            envoy_prometheus_port: 15090,
            secure_metrics_port: 0,
            secure_merged_metrics_port: 0,
            status_proxy_protocol: false,
            workload_identity_socket: "socket".to_owned(),
            exit_on_zero_active_connections: false,
            outlier_log_path: String::new(),
            delta: true,
            dual_stack: false,
            strip_fragment: true,
            compliance_policy: String::new(),
            host_ip: String::new(),
            log_json: false,
            workload_discovery: true,
        }
    }
}

impl Settings {
    /// Takes the settings out of a node's metadata. The agents of Istio do not send them: then they
    /// are those of other keys, for Istio's Envoy.
    ///
    /// # Errors
    /// If a setting has the wrong type.
    pub fn take_from(metadata: &mut Map<String, Value>) -> Result<Self, serde_json::Error> {
        if let Some(sent) = metadata.remove(SETTINGS_KEY) {
            return serde_json::from_value(sent);
        }

        let default = Self::default();
        let port = |key: &str, default: u16| {
            let port = metadata.get(key).and_then(Value::as_u64);
            port.and_then(|port| u16::try_from(port).ok())
                .unwrap_or(default)
        };
        let text = |key: &str, default: &str| {
            let text = metadata.get(key).and_then(Value::as_str);
            text.unwrap_or(default).to_owned()
        };
        Ok(Self {
            envoy_status_port: port("ENVOY_STATUS_PORT", default.envoy_status_port),
            envoy_prometheus_port: port("ENVOY_PROMETHEUS_PORT", default.envoy_prometheus_port),
            secure_metrics_port: port("ENVOY_SECURE_METRICS_PORT", 0),
            secure_merged_metrics_port: port("ENVOY_SECURE_MERGED_METRICS_PORT", 0),
            workload_identity_socket: text(
                "WORKLOAD_IDENTITY_SOCKET_FILE",
                &default.workload_identity_socket,
            ),
            exit_on_zero_active_connections: text("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "") == "true",
            outlier_log_path: text("OUTLIER_LOG_PATH", ""),
            ..default
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken(metadata: &Value) -> (Settings, Value) {
        let mut metadata = metadata.as_object().unwrap().clone();
        let settings = Settings::take_from(&mut metadata).unwrap();
        (settings, metadata.into())
    }

    #[test]
    fn settings_of_an_agent_are_taken_out_of_the_metadata() {
        let settings = Settings {
            envoy_status_port: 25021,
            delta: false,
            workload_discovery: false,
            ..Settings::default()
        };
        let metadata = json!({ "NAME": "web-1", SETTINGS_KEY: settings });
        assert_eq!(taken(&metadata), (settings, json!({ "NAME": "web-1" })));
    }

    #[test]
    fn the_settings_of_istios_agent_are_in_other_keys() {
        let metadata = json!({
            "ENVOY_STATUS_PORT": 25021, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true",
            "WORKLOAD_IDENTITY_SOCKET_FILE": "spire",
        });
        let expected = Settings {
            envoy_status_port: 25021,
            exit_on_zero_active_connections: true,
            workload_identity_socket: "spire".to_owned(),
            ..Settings::default()
        };
        assert_eq!(taken(&metadata), (expected, metadata));

        let mut wrong = json!({ SETTINGS_KEY: { "delta": "yes" } });
        let wrong = wrong.as_object_mut().unwrap();
        assert!(Settings::take_from(wrong).is_err());
    }
}
