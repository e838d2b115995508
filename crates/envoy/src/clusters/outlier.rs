//! Outlier detection: ejection of failing endpoints.

use navarch_proto::envoy::config::cluster::v3::OutlierDetection as WireOutlier;
use navarch_proto::envoy::config::common::matcher::v3::{
    HttpHeadersMatch, MatchPredicate, match_predicate,
};
use navarch_proto::envoy::config::route::v3::{HeaderMatcher, header_matcher};
use navarch_proto::envoy::extensions::upstreams::http::v3::http_protocol_options;

use super::builder::ClusterBuilder;
use crate::percent::percent;
use crate::sds::exactly;
use navarch_api::istio::OutlierDetection;

/// Applies outlier detection to a cluster. `needs_unhealthy` means that unhealthy endpoints are
/// always sent; then Envoy must never use them as a fallback.
pub(super) fn apply(
    builder: &mut ClusterBuilder,
    outlier: Option<&OutlierDetection>,
    needs_unhealthy: bool,
) {
    let Some(outlier) = outlier else { return };
    builder.cluster.outlier_detection = Some(wire(outlier));
    if let Ok(healthy) = u32::try_from(outlier.min_health_percent) {
        // 0 is set explicitly: the default in Envoy is 50.
        let value = if needs_unhealthy {
            0.0
        } else {
            f64::from(healthy)
        };
        builder.common_lb().healthy_panic_threshold = Some(percent(value));
    }
    let codes = &outlier.outlier_detection_http_error_codes;
    if !codes.is_empty() {
        builder.http.outlier = Some(http_protocol_options::OutlierDetection {
            error_matcher: Some(errors(codes)),
        });
    }
}

/// The largest percentage that Envoy accepts.
const ALL: u32 = 100;

/// The detection settings. Detection by success rate is always disabled.
fn wire(outlier: &OutlierDetection) -> WireOutlier {
    let enforced = |count: u32| if count > 0 { ALL } else { 0 };
    let mut wire = WireOutlier {
        enforcing_success_rate: Some(0),
        consecutive_5xx: outlier.consecutive_5xx_errors,
        enforcing_consecutive_5xx: outlier.consecutive_5xx_errors.map(enforced),
        consecutive_gateway_failure: outlier.consecutive_gateway_errors,
        enforcing_consecutive_gateway_failure: outlier.consecutive_gateway_errors.map(enforced),
        interval: outlier.interval.map(Into::into),
        base_ejection_time: outlier.base_ejection_time.map(Into::into),
        max_ejection_percent: u32::try_from(outlier.max_ejection_percent)
            .ok()
            .filter(|percent| *percent > 0)
            .map(|percent| percent.min(ALL)),
        failure_percentage_threshold: outlier
            .failure_percentage_threshold
            .map(|percent| percent.min(ALL)),
        // Envoy's default is 0: failures would be counted, and no endpoint ejected.
        enforcing_failure_percentage: outlier.failure_percentage_threshold.map(|_| ALL),
        ..WireOutlier::default()
    };

    if outlier.split_external_local_origin_errors {
        let local = outlier
            .consecutive_local_origin_failures
            .filter(|count| *count > 0);
        wire.split_external_local_origin_errors = true;
        wire.consecutive_local_origin_failure = local;
        wire.enforcing_consecutive_local_origin_failure = local.map(enforced);
        wire.enforcing_local_origin_success_rate = Some(0);
    }

    wire
}

/// Matches responses with one of these status codes.
fn errors(codes: &[u32]) -> MatchPredicate {
    let mut rules: Vec<MatchPredicate> = codes.iter().map(|code| status(*code)).collect();
    if rules.len() == 1 {
        return rules.remove(0);
    }
    MatchPredicate {
        rule: Some(match_predicate::Rule::OrMatch(match_predicate::MatchSet {
            rules,
        })),
    }
}

/// Matches responses with this status code.
fn status(code: u32) -> MatchPredicate {
    let header = HeaderMatcher {
        name: ":status".to_owned(),
        header_match_specifier: Some(header_matcher::HeaderMatchSpecifier::StringMatch(exactly(
            &code.to_string(),
        ))),
        ..HeaderMatcher::default()
    };
    MatchPredicate {
        rule: Some(match_predicate::Rule::HttpResponseHeadersMatch(
            HttpHeadersMatch {
                headers: vec![header],
            },
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_ejected_by_their_failures_only_from_a_threshold_on() {
        let of = |threshold| {
            let wire = wire(&OutlierDetection {
                failure_percentage_threshold: threshold,
                ..OutlierDetection::default()
            });
            (
                wire.failure_percentage_threshold,
                wire.enforcing_failure_percentage,
            )
        };
        assert_eq!(of(None), (None, None));
        assert_eq!(of(Some(40)), (Some(40), Some(100)));
    }

    #[test]
    fn percentages_are_at_most_100_for_envoy() {
        let wire = wire(&OutlierDetection {
            max_ejection_percent: 101,
            failure_percentage_threshold: Some(u32::MAX),
            ..OutlierDetection::default()
        });
        assert_eq!(wire.max_ejection_percent, Some(100));
        assert_eq!(wire.failure_percentage_threshold, Some(100));
    }
}
