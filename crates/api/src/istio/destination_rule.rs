//! DestinationRule: policies for traffic after routing has selected a host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{
    ClientTlsSettings, ConnectionPoolSettings, LoadBalancerSettings, OutlierDetection,
    PolicyWorkloadSelector, PortSelector,
};
use crate::duration::Duration;

/// `networking.istio.io/DestinationRule`: traffic policies for a host and its subsets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DestinationRule {
    /// The host; may be a wildcard, and a short name is completed with the object's namespace.
    pub host: String,
    /// Policy for all traffic to the host.
    pub traffic_policy: Option<Box<TrafficPolicy>>,
    /// Named groups of the host's endpoints, each with its own policy.
    pub subsets: Vec<Subset>,
    /// Namespaces that see this object: `.` is its own, `*` all, else names. Empty is the mesh
    /// default.
    pub export_to: Vec<String>,
    /// Client workloads of the object's namespace that the rule applies to; unset selects all
    /// clients.
    pub workload_selector: Option<PolicyWorkloadSelector>,
}

/// Traffic policy for all ports of a host, and for individual ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPolicy {
    /// How clients select endpoints.
    pub load_balancer: Option<Box<LoadBalancerSettings>>,
    /// Limits on connections and requests.
    pub connection_pool: Option<Box<ConnectionPoolSettings>>,
    /// When Envoy ejects failing endpoints from load balancing.
    pub outlier_detection: Option<Box<OutlierDetection>>,
    /// TLS settings for connections to the host; unset leaves the choice to the mesh's automatic
    /// mutual TLS.
    pub tls: Option<Box<ClientTlsSettings>>,
    /// Policies for individual ports; each replaces the policy above entirely.
    pub port_level_settings: Vec<PortTrafficPolicy>,
    /// Forwards TCP and TLS through a `CONNECT` or `POST` tunnel.
    pub tunnel: Option<TunnelSettings>,
    /// Sends a PROXY protocol header at the start of each connection.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Limit on concurrent retries, relative to concurrent requests.
    pub retry_budget: Option<RetryBudget>,
}

/// Traffic policy for one port of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PortTrafficPolicy {
    /// The port of the service.
    pub port: Option<PortSelector>,
    /// How clients select endpoints.
    pub load_balancer: Option<Box<LoadBalancerSettings>>,
    /// Limits on connections and requests.
    pub connection_pool: Option<Box<ConnectionPoolSettings>>,
    /// When Envoy ejects failing endpoints from load balancing.
    pub outlier_detection: Option<Box<OutlierDetection>>,
    /// TLS settings for connections to the port.
    pub tls: Option<Box<ClientTlsSettings>>,
}

/// Settings of the tunnel for the connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TunnelSettings {
    /// `CONNECT` or `POST`; empty is `CONNECT`.
    pub protocol: String,
    /// The target host of the tunnel.
    pub target_host: String,
    /// The target port of the tunnel.
    pub target_port: u32,
}

wire_enum! {
    /// The version of the PROXY protocol header.
    ProxyProtocolVersion {
        /// The text form.
        V1 = 0, "V1";
        /// The binary form.
        V2 = 1, "V2";
    }
}

/// Settings of the PROXY protocol header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyProtocol {
    /// The version of the PROXY protocol.
    pub version: ProxyProtocolVersion,
}

/// Limit on concurrent retries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RetryBudget {
    /// Maximum number of concurrent retries as a percentage of concurrent requests; unset means 20.
    pub percent: Option<f64>,
    /// Number of retries that are always allowed.
    pub min_retry_concurrency: u32,
    /// The interval over which requests are counted.
    pub budget_interval: Option<Duration>,
}

/// A named group of a host's endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// The subset's name, which routes reference.
    pub name: String,
    /// Labels that the endpoints must have.
    pub labels: BTreeMap<String, String>,
    /// Policy for the subset; overrides the policy of the host.
    pub traffic_policy: Option<Box<TrafficPolicy>>,
}
