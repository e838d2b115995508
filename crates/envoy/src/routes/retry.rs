//! Retry policies of routes.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::route::v3::RetryPolicy;
use navarch_proto::envoy::config::route::v3::retry_policy::{
    RetryBackOff, RetryHostPredicate, RetryPriority, retry_host_predicate, retry_priority,
};
use navarch_proto::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use navarch_proto::envoy::extensions::retry::priority::previous_priorities::v3::PreviousPrioritiesConfig;

use navarch_api::istio::HttpRetry;

/// Default retry conditions of outbound requests.
const RETRY_ON: &str =
    "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";

/// Retry conditions of inbound requests: only those that the application cannot have received.
const INBOUND_RETRY_ON: &str = "reset-before-request";

/// Default number of retries.
const ATTEMPTS: u32 = 2;

/// Number of attempts of Envoy to select a host that was not tried yet.
const HOST_SELECTION_ATTEMPTS: i64 = 5;

/// The condition that enables `retriable_status_codes`.
const STATUS_CODES: &str = "retriable-status-codes";

/// Whether requests are bound to one host by a hash, so that a retry must go to the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostChoice {
    /// Any host.
    Free,
    /// The host of the hash policy.
    ByHash,
}

/// The policy of an outbound route; `None` if retries are disabled.
pub(super) fn outbound(declared: Option<&HttpRetry>, choice: HostChoice) -> Option<RetryPolicy> {
    let mut policy = RetryPolicy {
        retry_on: RETRY_ON.to_owned(),
        num_retries: Some(ATTEMPTS),
        host_selection_retry_max_attempts: HOST_SELECTION_ATTEMPTS,
        ..RetryPolicy::default()
    };

    if choice == HostChoice::Free {
        policy.retry_host_predicate = vec![previous_hosts()];
    }

    let Some(declared) = declared else {
        return Some(policy);
    };

    apply(&mut policy, declared)?;
    policy.per_try_timeout = declared.per_try_timeout.map(Into::into);

    match declared.retry_ignore_previous_hosts {
        Some(true) => policy.retry_host_predicate = vec![previous_hosts()],
        Some(false) => policy.retry_host_predicate.clear(),
        None => {}
    }

    if declared.retry_remote_localities == Some(true) {
        policy.retry_priority = Some(previous_priorities());
    }

    Some(policy)
}

/// The policy of an inbound route, whose only host is the application; `None` if retries are
/// disabled.
pub(super) fn inbound(declared: Option<&HttpRetry>) -> Option<RetryPolicy> {
    let mut policy = RetryPolicy {
        retry_on: INBOUND_RETRY_ON.to_owned(),
        num_retries: Some(ATTEMPTS),
        ..RetryPolicy::default()
    };
    if let Some(declared) = declared {
        apply(&mut policy, declared)?;
    }
    Some(policy)
}

/// Sets attempts, conditions and timeouts; `None` if retries are disabled.
fn apply(policy: &mut RetryPolicy, declared: &HttpRetry) -> Option<()> {
    let attempts = u32::try_from(declared.attempts)
        .ok()
        .filter(|attempts| *attempts > 0)?;
    policy.num_retries = Some(attempts);
    if !declared.retry_on.is_empty() {
        (policy.retry_on, policy.retriable_status_codes) = conditions(&declared.retry_on);
    }
    policy.retry_back_off = declared.backoff.map(|backoff| RetryBackOff {
        base_interval: Some(backoff.into()),
        max_interval: None,
    });
    Some(())
}

/// Separates the HTTP status codes of a `retryOn` from Envoy's conditions.
fn conditions(retry_on: &str) -> (String, Vec<u32>) {
    let mut codes = Vec::new();
    let mut named = Vec::new();

    for part in retry_on
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match part.parse().ok().filter(|code| is_known_status(*code)) {
            Some(code) => codes.push(code),
            None => named.push(part),
        }
    }

    let mut named = named.join(",");
    if !codes.is_empty() && !named.contains(STATUS_CODES) {
        // Istio generates a leading comma; Envoy skips empty conditions.
        named.push(',');
        named.push_str(STATUS_CODES);
    }

    (named, codes)
}

/// Whether a number is an HTTP status with a name in Go's `net/http`; others are passed to Envoy as
/// conditions.
fn is_known_status(code: u32) -> bool {
    matches!(code, 100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426)
        || matches!(code, 428 | 429 | 431 | 451 | 500..=508 | 510 | 511)
}

/// Excludes previously tried hosts from retries.
fn previous_hosts() -> RetryHostPredicate {
    RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(pack(
            &PreviousHostsPredicate {},
        ))),
    }
}

/// Allows retries in other localities: every second one uses the next priority.
fn previous_priorities() -> RetryPriority {
    RetryPriority {
        name: "envoy.retry_priorities.previous_priorities".to_owned(),
        config_type: Some(retry_priority::ConfigType::TypedConfig(pack(
            &PreviousPrioritiesConfig {
                update_frequency: 2,
            },
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_no_status_stay_conditions() {
        assert_eq!(
            conditions("503, 5xx,,419"),
            ("5xx,419,retriable-status-codes".to_owned(), vec![503])
        );
        assert_eq!(
            conditions("503"),
            (",retriable-status-codes".to_owned(), vec![503])
        );
        assert_eq!(
            conditions("retriable-status-codes,418"),
            ("retriable-status-codes".to_owned(), vec![418])
        );
        assert_eq!(
            conditions("gateway-error"),
            ("gateway-error".to_owned(), vec![])
        );
    }

    #[test]
    fn zero_attempts_disable_retries() {
        let off = HttpRetry::default();
        assert_eq!(outbound(Some(&off), HostChoice::Free), None);
        assert_eq!(inbound(Some(&off)), None);
        assert!(
            outbound(None, HostChoice::ByHash)
                .unwrap()
                .retry_host_predicate
                .is_empty()
        );
    }
}
