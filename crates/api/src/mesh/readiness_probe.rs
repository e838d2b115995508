//! How an application outside Kubernetes is probed.

use serde::{Deserialize, Serialize};

/// How an application is probed. Exactly one way is meant to be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessProbe {
    /// How long after the start the first probe waits.
    pub initial_delay_seconds: i32,
    /// How long a probe may take; 0 is 1.
    pub timeout_seconds: i32,
    /// Time between probes; 0 is 10.
    pub period_seconds: i32,
    /// How many good probes in a row make it ready; 0 is 1.
    pub success_threshold: i32,
    /// How many bad probes in a row make it not ready; 0 is 3.
    pub failure_threshold: i32,
    /// By an HTTP request.
    pub http_get: Option<HttpHealthCheckConfig>,
    /// By a TCP connection.
    pub tcp_socket: Option<TcpHealthCheckConfig>,
    /// By a command.
    pub exec: Option<ExecHealthCheckConfig>,
    /// By gRPC's health protocol.
    pub grpc: Option<GrpcHealthCheckConfig>,
}

/// A probe by an HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpHealthCheckConfig {
    /// The path; empty is `/`.
    pub path: String,
    /// The port.
    pub port: u32,
    /// The host; empty is the workload's own.
    pub host: String,
    /// `http` or `https`; empty is `http`.
    pub scheme: String,
    /// Headers to send.
    pub http_headers: Vec<ProbeHeader>,
}

/// A header of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeHeader {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// A probe by a TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TcpHealthCheckConfig {
    /// The host; empty is the workload's own.
    pub host: String,
    /// The port.
    pub port: u32,
}

/// A probe by a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ExecHealthCheckConfig {
    /// The command and its arguments; no shell is used.
    pub command: Vec<String>,
}

/// A probe by gRPC's health protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcHealthCheckConfig {
    /// The port.
    pub port: u32,
    /// The service to ask about; may be empty.
    pub service: String,
}
