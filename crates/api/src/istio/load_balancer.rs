//! How clients pick endpoints.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use crate::duration::Duration;

wire_enum! {
    /// Load balancing that needs no further words.
    SimpleLb {
        /// The mesh's choice: least requests.
        Unspecified = 0, "UNSPECIFIED";
        /// The old name of `LEAST_REQUEST`.
        LeastConn = 1, "LEAST_CONN";
        /// Any healthy endpoint.
        Random = 2, "RANDOM";
        /// The address that the client asked for.
        Passthrough = 3, "PASSTHROUGH";
        /// One after the other.
        RoundRobin = 4, "ROUND_ROBIN";
        /// The less busy of two picked by chance.
        LeastRequest = 5, "LEAST_REQUEST";
    }
}

/// How endpoints are picked.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerSettings {
    /// A plain way. Not together with `consistent_hash`.
    pub simple: Option<SimpleLb>,
    /// By a hash of the request. Not together with `simple`.
    pub consistent_hash: Option<ConsistentHashLb>,
    /// By the load that endpoints report of themselves. Not together with the two above. Read by nothing.
    pub backend_utilization: Option<BackendUtilizationLb>,
    /// Which localities are preferred; replaces the mesh-wide setting wholly.
    pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    /// Which zones are preferred, by Envoy's zone-aware routing.
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    /// How long a new endpoint is spared; superseded by `warmup`.
    pub warmup_duration_secs: Option<Duration>,
    /// How a new endpoint is spared.
    pub warmup: Option<WarmupConfiguration>,
}

/// Weighs endpoints by the load that they report of themselves.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendUtilizationLb {
    /// How much errors count against an endpoint, in percent.
    pub error_utilization_penalty_percent: u32,
    /// The reported metrics that are looked at.
    pub metric_names_for_computing_utilization: Vec<String>,
    /// How long a weight is kept without a new report.
    pub weight_expiration_period: Option<Duration>,
    /// How long an endpoint must report before its weight counts.
    pub weight_stabilization_period: Option<Duration>,
    /// How often weights are computed anew.
    pub weight_update_period: Option<Duration>,
}

/// Picks by a hash, so that like requests reach the same endpoint. At most one key and one algorithm may be set.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsistentHashLb {
    /// Key: the value of this header.
    pub http_header_name: Option<String>,
    /// Key: this cookie, made when absent.
    pub http_cookie: Option<HttpCookie>,
    /// Key: the client's address.
    pub use_source_ip: Option<bool>,
    /// Key: the value of this query parameter.
    pub http_query_parameter_name: Option<String>,
    /// Algorithm: a hash ring.
    pub ring_hash: Option<RingHash>,
    /// Algorithm: Maglev.
    pub maglev: Option<MagLev>,
    /// Least size of the ring; superseded by `ring_hash`.
    pub minimum_ring_size: u64,
}

/// The hash ring algorithm.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RingHash {
    /// Least number of places on the ring; 0 is 1024.
    pub minimum_ring_size: u64,
}

/// The Maglev algorithm.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MagLev {
    /// Size of the table, a prime; 0 is 65537.
    pub table_size: u64,
}

/// The cookie whose value is the key.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpCookie {
    /// The cookie's name.
    pub name: String,
    /// The path that a new cookie gets.
    pub path: String,
    /// How long a new cookie lives; `None` makes no cookie.
    pub ttl: Option<Duration>,
    /// Further attributes that a new cookie gets.
    pub attributes: Vec<CookieAttribute>,
}

/// One attribute of a new cookie.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CookieAttribute {
    /// The name, such as `SameSite`.
    pub name: String,
    /// The value; may be empty.
    pub value: String,
}

/// How a new endpoint is spared until it is warm.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WarmupConfiguration {
    /// How long it is spared.
    pub duration: Option<Duration>,
    /// Share of its weight that it starts with, in percent; `None` is 10.
    pub minimum_percent: Option<f64>,
    /// How steep its weight rises; `None` is 1, a straight line.
    pub aggression: Option<f64>,
}

/// Which localities are preferred. At most one of `distribute`, `failover` and `failover_priority` is meant to be set.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalityLoadBalancerSetting {
    /// Fixed shares by client locality.
    pub distribute: Vec<Distribute>,
    /// Where a region's traffic goes when it fails.
    pub failover: Vec<Failover>,
    /// Labels that endpoints should share with the client, most important first; `key=value` names the value instead.
    pub failover_priority: Vec<String>,
    /// Whether locality counts at all; `None` leaves it to the mesh.
    pub enabled: Option<bool>,
}

/// Fixed shares of the traffic from one locality.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Distribute {
    /// Client locality as `region/zone/subzone`, with `*` for the rest.
    pub from: String,
    /// Share in percent by endpoint locality; together 100.
    pub to: BTreeMap<String, u32>,
}

/// Where a region's traffic goes when it fails.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failover {
    /// The failing region.
    pub from: String,
    /// The region that takes over.
    pub to: String,
}

/// Which zones are preferred, by Envoy's zone-aware routing.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneAwareLoadBalancerSetting {
    /// Whether zones count at all.
    pub enabled: Option<bool>,
    /// Where a region's traffic goes when it fails.
    pub failover: Vec<Failover>,
    /// Labels that endpoints should share with the client, most important first.
    pub failover_priority: Vec<String>,
    /// Fewest endpoints for which zones count; `None` is Envoy's 6.
    pub min_cluster_size: Option<u64>,
}
