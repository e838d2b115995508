//! How clients select endpoints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use crate::duration::Duration;

wire_enum! {
    /// Load balancing algorithms without parameters.
    SimpleLb {
        /// The mesh's default, `LEAST_REQUEST`.
        Unspecified = 0, "UNSPECIFIED";
        /// Deprecated name of `LEAST_REQUEST`.
        LeastConn = 1, "LEAST_CONN";
        /// Selects a healthy endpoint at random.
        Random = 2, "RANDOM";
        /// Forwards to the original destination address of the connection.
        Passthrough = 3, "PASSTHROUGH";
        /// Selects the endpoints in turn.
        RoundRobin = 4, "ROUND_ROBIN";
        /// Selects the endpoint with fewer active requests out of two random endpoints.
        LeastRequest = 5, "LEAST_REQUEST";
    }
}

/// How clients select endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerSettings {
    /// An algorithm without parameters. Mutually exclusive with `consistent_hash`.
    pub simple: Option<SimpleLb>,
    /// Selection by a hash of the request. Mutually exclusive with `simple`.
    pub consistent_hash: Option<ConsistentHashLb>,
    /// Weights from the load that endpoints report. Mutually exclusive with `simple` and
    /// `consistent_hash`. Ignored.
    pub backend_utilization: Option<BackendUtilizationLb>,
    /// Locality preferences; replaces the mesh-wide setting entirely.
    pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    /// Zone preferences, through Envoy's zone-aware routing.
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    /// Duration of the slow start of a new endpoint; deprecated in favor of `warmup`.
    pub warmup_duration_secs: Option<Duration>,
    /// Slow start of new endpoints.
    pub warmup: Option<WarmupConfiguration>,
}

/// Weighs endpoints by the load that they report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BackendUtilizationLb {
    /// How much errors reduce the weight of an endpoint, in percent.
    pub error_utilization_penalty_percent: u32,
    /// The reported metrics from which weights are computed.
    pub metric_names_for_computing_utilization: Vec<String>,
    /// How long a weight remains valid without a new report.
    pub weight_expiration_period: Option<Duration>,
    /// How long an endpoint must report before its weight applies.
    pub weight_stabilization_period: Option<Duration>,
    /// Interval between computations of weights.
    pub weight_update_period: Option<Duration>,
}

/// Selects endpoints by a hash, so equal keys reach the same endpoint. At most one key and one
/// algorithm may be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConsistentHashLb {
    /// Key: the value of this header.
    pub http_header_name: Option<String>,
    /// Key: this cookie; Envoy creates the cookie when it is absent.
    pub http_cookie: Option<HttpCookie>,
    /// Key: the client's source IP.
    pub use_source_ip: Option<bool>,
    /// Key: the value of this query parameter.
    pub http_query_parameter_name: Option<String>,
    /// Algorithm: a hash ring.
    pub ring_hash: Option<RingHash>,
    /// Algorithm: Maglev.
    pub maglev: Option<MagLev>,
    /// Minimum size of the ring; deprecated in favor of `ring_hash`.
    pub minimum_ring_size: u64,
}

/// The hash ring algorithm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RingHash {
    /// Minimum number of entries on the ring; 0 is 1024.
    pub minimum_ring_size: u64,
}

/// The Maglev algorithm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MagLev {
    /// Number of entries in the table, a prime; 0 is 65537.
    pub table_size: u64,
}

/// The cookie whose value is the hash key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpCookie {
    /// The cookie's name.
    pub name: String,
    /// The path of a generated cookie.
    pub path: String,
    /// The lifetime of a generated cookie; unset generates no cookie.
    pub ttl: Option<Duration>,
    /// Additional attributes of a generated cookie.
    pub attributes: Vec<CookieAttribute>,
}

/// One attribute of a generated cookie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CookieAttribute {
    /// The attribute's name, such as `SameSite`.
    pub name: String,
    /// The attribute's value; may be empty.
    pub value: String,
}

/// Slow start of a new endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WarmupConfiguration {
    /// Duration of the slow start.
    pub duration: Option<Duration>,
    /// Initial percentage of the endpoint's weight; unset means 10.
    pub minimum_percent: Option<f64>,
    /// How steeply the weight increases; unset means 1, a linear increase.
    pub aggression: Option<f64>,
}

/// Locality preferences. At most one of `distribute`, `failover` and `failover_priority` is
/// expected to be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LocalityLoadBalancerSetting {
    /// Fixed traffic shares by client locality.
    pub distribute: Vec<Distribute>,
    /// The region that receives a region's traffic when its endpoints are unhealthy.
    pub failover: Vec<Failover>,
    /// Labels that endpoints should share with the client, most important first; `key=value` fixes
    /// the value.
    pub failover_priority: Vec<String>,
    /// Whether locality affects load balancing; unset inherits the mesh setting.
    pub enabled: Option<bool>,
}

/// Fixed shares of the traffic from one locality.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Distribute {
    /// Client locality as `region/zone/subzone`; `*` matches all remaining parts.
    pub from: String,
    /// Traffic share in percent by endpoint locality; the sum is 100.
    pub to: BTreeMap<String, u32>,
}

/// The region that receives a region's traffic when its endpoints are unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Failover {
    /// The region whose endpoints are unhealthy.
    pub from: String,
    /// The region that receives the traffic.
    pub to: String,
}

/// Zone preferences, through Envoy's zone-aware routing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneAwareLoadBalancerSetting {
    /// Whether zones affect load balancing.
    pub enabled: Option<bool>,
    /// The region that receives a region's traffic when its endpoints are unhealthy.
    pub failover: Vec<Failover>,
    /// Labels that endpoints should share with the client, most important first.
    pub failover_priority: Vec<String>,
    /// Minimum number of endpoints for zone-aware routing; unset means Envoy's 6.
    pub min_cluster_size: Option<u64>,
}
