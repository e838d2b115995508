//! XBackendTrafficPolicy.

use serde::{Deserialize, Serialize};

use super::{PolicyTarget, SessionPersistence};

/// `gateway.networking.x-k8s.io/XBackendTrafficPolicy`: how requests to backends are tried again and kept together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XBackendTrafficPolicy {
    /// Services that the policy is about, in its own namespace.
    pub target_refs: Vec<PolicyTarget>,
    /// How many requests may be tried again at a time.
    pub retry_constraint: Option<RetryConstraint>,
    /// How requests of a session find the same endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// How many requests may be tried again at a time (`RetryConstraint`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryConstraint {
    /// The share of the requests.
    pub budget: BudgetDetails,
    /// How many may always be.
    pub min_retry_rate: RequestRate,
}

/// A share of the requests of some time (`BudgetDetails`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetDetails {
    /// Per cent.
    pub percent: i32,
    /// The time, as the Gateway API writes durations.
    pub interval: String,
}

/// A number of requests per interval (`RequestRate`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestRate {
    /// How many.
    pub count: Option<i32>,
    /// In how long, as the Gateway API writes durations.
    pub interval: Option<String>,
}

impl Default for BudgetDetails {
    fn default() -> Self {
        Self { percent: 20, interval: "10s".to_owned() }
    }
}

impl Default for RequestRate {
    fn default() -> Self {
        Self { count: Some(10), interval: Some("1s".to_owned()) }
    }
}
