//! XBackendTrafficPolicy.

use serde::{Deserialize, Serialize};

use super::{PolicyTarget, SessionPersistence};

/// `gateway.networking.x-k8s.io/XBackendTrafficPolicy`: retries and session persistence of requests
/// to backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XBackendTrafficPolicy {
    /// Services that the policy applies to, in its own namespace.
    pub target_refs: Vec<PolicyTarget>,
    /// Limit on concurrent retries.
    pub retry_constraint: Option<RetryConstraint>,
    /// How requests of a session reach the same endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// Limit on concurrent retries (`RetryConstraint`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryConstraint {
    /// The share of the requests that may be retries.
    pub budget: BudgetDetails,
    /// The rate of retries that is always allowed.
    pub min_retry_rate: RequestRate,
}

/// A share of the requests in an interval (`BudgetDetails`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetDetails {
    /// Percent of the requests in the interval.
    pub percent: i32,
    /// The interval, in the Gateway API's duration format.
    pub interval: String,
}

/// A number of requests per interval (`RequestRate`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestRate {
    /// Requests in the interval.
    pub count: Option<i32>,
    /// The interval, in the Gateway API's duration format.
    pub interval: Option<String>,
}

impl Default for BudgetDetails {
    fn default() -> Self {
        Self {
            percent: 20,
            interval: "10s".to_owned(),
        }
    }
}

impl Default for RequestRate {
    fn default() -> Self {
        Self {
            count: Some(10),
            interval: Some("1s".to_owned()),
        }
    }
}
