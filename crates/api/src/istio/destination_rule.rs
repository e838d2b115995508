//! DestinationRule: policies for traffic that is already routed to a host.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{
    ClientTlsSettings, ConnectionPoolSettings, LoadBalancerSettings, OutlierDetection, PolicyWorkloadSelector,
    PortSelector,
};
use crate::duration::Duration;

/// `networking.istio.io/DestinationRule`: how clients treat a host.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DestinationRule {
    /// The host; a short name is completed with the object's namespace, and a wildcard is allowed.
    pub host: String,
    /// Policy for all of the host.
    pub traffic_policy: Option<Box<TrafficPolicy>>,
    /// Named parts of the host, each with its own policy.
    pub subsets: Vec<Subset>,
    /// Namespaces that see this object: `.` its own, `*` all, or names. Empty is the mesh default.
    pub export_to: Vec<String>,
    /// Client workloads of the object's namespace to which the rule applies; `None` is all clients.
    pub workload_selector: Option<PolicyWorkloadSelector>,
}

/// How clients treat a host, for all ports and for single ones.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPolicy {
    /// How endpoints are picked.
    pub load_balancer: Option<Box<LoadBalancerSettings>>,
    /// Limits on connections and requests.
    pub connection_pool: Option<Box<ConnectionPoolSettings>>,
    /// When failing endpoints are left out.
    pub outlier_detection: Option<Box<OutlierDetection>>,
    /// TLS towards the host; `None` lets the mesh decide.
    pub tls: Option<Box<ClientTlsSettings>>,
    /// Policies for single ports; each replaces the whole above it.
    pub port_level_settings: Vec<PortTrafficPolicy>,
    /// Sends TCP and TLS through a CONNECT or POST tunnel.
    pub tunnel: Option<TunnelSettings>,
    /// Whether connections start with a PROXY header.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Limit on retries in flight, relative to requests in flight.
    pub retry_budget: Option<RetryBudget>,
}

/// How clients treat one port of a host.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortTrafficPolicy {
    /// The port of the service.
    pub port: Option<PortSelector>,
    /// How endpoints are picked.
    pub load_balancer: Option<Box<LoadBalancerSettings>>,
    /// Limits on connections and requests.
    pub connection_pool: Option<Box<ConnectionPoolSettings>>,
    /// When failing endpoints are left out.
    pub outlier_detection: Option<Box<OutlierDetection>>,
    /// TLS towards the port.
    pub tls: Option<Box<ClientTlsSettings>>,
}

/// A tunnel through which the connection goes.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TunnelSettings {
    /// `CONNECT` or `POST`; empty is `CONNECT`.
    pub protocol: String,
    /// The host that the tunnel leads to.
    pub target_host: String,
    /// The port that the tunnel leads to.
    pub target_port: u32,
}

wire_enum! {
    /// The version of the PROXY header.
    ProxyProtocolVersion {
        /// The text form.
        V1 = 0, "V1";
        /// The binary form.
        V2 = 1, "V2";
    }
}

/// The PROXY header that connections start with.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyProtocol {
    /// The version.
    pub version: ProxyProtocolVersion,
}

/// Limit on retries in flight.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryBudget {
    /// Share of requests that may be retries, in percent; `None` is 20.
    pub percent: Option<f64>,
    /// Retries that are allowed in any case.
    pub min_retry_concurrency: u32,
    /// Over which time requests are counted.
    pub budget_interval: Option<Duration>,
}

/// A named part of a host's endpoints.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// The name that routes use.
    pub name: String,
    /// Labels that the endpoints carry.
    pub labels: BTreeMap<String, String>,
    /// Policy laid over that of the host.
    pub traffic_policy: Option<Box<TrafficPolicy>>,
}
