//! Rules for connection pools and outlier detection.

use super::Verdict;
use super::name::{duration, optional_duration, percent};
use super::path::Path;
use crate::duration::Duration;
use crate::istio::{
    ConnectionKeepalive, ConnectionPoolSettings, H2UpgradePolicy, HttpSettings, OutlierDetection,
    TcpKeepalive, TcpSettings,
};

/// Validates a connection pool.
pub(super) fn connection_pool(
    verdict: &mut Verdict,
    at: &Path<'_>,
    pool: Option<&ConnectionPoolSettings>,
) {
    let Some(ConnectionPoolSettings { tcp, http }) = pool else {
        return;
    };
    if tcp.is_none() && http.is_none() {
        verdict.error(at, "is empty; set tcp or http");
    }
    if let Some(tcp) = tcp {
        tcp_settings(verdict, &at.field("tcp"), tcp);
    }
    if let Some(http) = http {
        http_settings(verdict, &at.field("http"), http);
    }
}

/// Validates a limit; 0 is unlimited.
fn limit(verdict: &mut Verdict, at: &Path<'_>, value: i32) {
    if value < 0 {
        verdict.error(
            at,
            format!("{value} is negative; write 1 or more, or 0 for the default"),
        );
    }
}

/// Validates the limits on TCP connections.
fn tcp_settings(verdict: &mut Verdict, at: &Path<'_>, tcp: &TcpSettings) {
    let TcpSettings {
        max_connections,
        connect_timeout,
        tcp_keepalive,
        max_connection_duration,
        idle_timeout,
    } = tcp;

    limit(verdict, &at.field("maxConnections"), *max_connections);
    optional_duration(verdict, &at.field("connectTimeout"), *connect_timeout);
    optional_duration(
        verdict,
        &at.field("maxConnectionDuration"),
        *max_connection_duration,
    );

    // Here zero disables the timeout, and so does a value below a millisecond.
    let idle_timeout = idle_timeout.filter(|timeout| timeout.as_millis() != 0);
    optional_duration(verdict, &at.field("idleTimeout"), idle_timeout);

    if let Some(TcpKeepalive {
        probes: _,
        time,
        interval,
    }) = tcp_keepalive
    {
        let at = &at.field("tcpKeepalive");
        optional_duration(verdict, &at.field("time"), *time);
        optional_duration(verdict, &at.field("interval"), *interval);
    }
}

/// Validates the limits on HTTP requests.
fn http_settings(verdict: &mut Verdict, at: &Path<'_>, http: &HttpSettings) {
    limit(
        verdict,
        &at.field("http1MaxPendingRequests"),
        http.http1_max_pending_requests,
    );

    limit(
        verdict,
        &at.field("http2MaxRequests"),
        http.http2_max_requests,
    );

    limit(
        verdict,
        &at.field("maxRequestsPerConnection"),
        http.max_requests_per_connection,
    );
    limit(verdict, &at.field("maxRetries"), http.max_retries);
    limit(
        verdict,
        &at.field("maxConcurrentStreams"),
        http.max_concurrent_streams,
    );

    optional_duration(verdict, &at.field("idleTimeout"), http.idle_timeout);

    if http.use_client_protocol && http.h2_upgrade_policy == H2UpgradePolicy::Upgrade {
        verdict.error(
            &at.field("useClientProtocol"),
            "keeps the client's protocol, but h2UpgradePolicy is UPGRADE; remove one of them",
        );
    }

    if let Some(ConnectionKeepalive { interval, timeout }) = http.http2_keep_alive {
        let at = &at.field("http2KeepAlive");
        required_duration(verdict, &at.field("interval"), interval);
        required_duration(verdict, &at.field("timeout"), timeout);
    }
}

/// Validates a duration that must be set.
fn required_duration(verdict: &mut Verdict, at: &Path<'_>, value: Option<Duration>) {
    let outcome = value.map_or_else(
        || Err("is missing; write a duration such as 30s".to_owned()),
        duration,
    );
    verdict.check(at, outcome);
}

/// Validates outlier detection.
pub(super) fn outlier_detection(
    verdict: &mut Verdict,
    at: &Path<'_>,
    outlier: Option<&OutlierDetection>,
) {
    let Some(outlier) = outlier else {
        return;
    };

    if outlier.consecutive_errors != 0 {
        verdict.warn(
            &at.field("consecutiveErrors"),
            "is deprecated; use consecutiveGatewayErrors or consecutive5xxErrors",
        );
    }

    if !outlier.split_external_local_origin_errors
        && outlier.consecutive_local_origin_failures.unwrap_or(0) > 0
    {
        verdict.error(
            &at.field("consecutiveLocalOriginFailures"),
            "has no effect while splitExternalLocalOriginErrors is false; set it to true",
        );
    }

    optional_duration(verdict, &at.field("interval"), outlier.interval);
    optional_duration(
        verdict,
        &at.field("baseEjectionTime"),
        outlier.base_ejection_time,
    );
    verdict.check(
        &at.field("maxEjectionPercent"),
        percent(outlier.max_ejection_percent),
    );

    verdict.check(
        &at.field("minHealthPercent"),
        percent(outlier.min_health_percent),
    );

    let threshold = &at.field("failurePercentageThreshold");
    match outlier.failure_percentage_threshold {
        Some(0) => verdict.warn(
            threshold,
            "is 0: endpoints are ejected without a failed request; remove it to disable the check",
        ),
        Some(value) => verdict.check(threshold, percent(i32::try_from(value).unwrap_or(i32::MAX))),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of errors and of warnings about a threshold.
    fn findings(threshold: u32) -> [Vec<String>; 2] {
        let outlier = OutlierDetection {
            failure_percentage_threshold: Some(threshold),
            ..OutlierDetection::default()
        };
        let mut verdict = Verdict::default();
        outlier_detection(
            &mut verdict,
            &Path::root("outlierDetection"),
            Some(&outlier),
        );
        [verdict.errors, verdict.warnings]
            .map(|problems| problems.into_iter().map(|problem| problem.field).collect())
    }

    #[test]
    fn failure_thresholds_are_percentages() {
        let field = vec!["outlierDetection.failurePercentageThreshold".to_owned()];
        for (threshold, expected) in [
            (0, [vec![], field.clone()]),
            (1, [vec![], vec![]]),
            (100, [vec![], vec![]]),
            (101, [field.clone(), vec![]]),
            (u32::MAX, [field, vec![]]),
        ] {
            assert_eq!(findings(threshold), expected, "{threshold}");
        }
    }
}
