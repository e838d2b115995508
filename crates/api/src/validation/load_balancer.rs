//! Rules for load balancing.

use std::collections::BTreeSet;

use super::Verdict;
use super::locality::{locality_setting, zone_aware_setting};
use super::name::duration;
use super::path::Path;
use crate::istio::{
    ConsistentHashLb, HttpCookie, LoadBalancerSettings, OutlierDetection, WarmupConfiguration,
};

/// The table size of Maglev must be below this number.
const MAGLEV_LIMIT: u64 = 5_000_011;

/// Validates load balancing settings, given the outlier detection beside them.
pub(super) fn load_balancer(
    verdict: &mut Verdict,
    at: &Path<'_>,
    settings: Option<&LoadBalancerSettings>,
    outlier: Option<&OutlierDetection>,
) {
    let Some(settings) = settings else {
        return;
    };

    let LoadBalancerSettings {
        simple,
        consistent_hash: hash,
        backend_utilization,
        locality_lb_setting,
        zone_aware_lb_setting,
        warmup_duration_secs: _,
        warmup: warm_up,
    } = settings;

    if let Some(hash) = hash {
        let at = &at.field("consistentHash");
        if simple.is_some() {
            verdict.error(at, "is set together with simple; keep one of them");
        }
        consistent_hash(verdict, at, hash);
    }

    if backend_utilization.is_some() && (simple.is_some() || hash.is_some()) {
        verdict.error(
            &at.field("backendUtilization"),
            "is set together with simple or consistentHash; keep one of them",
        );
    }

    if backend_utilization.is_some() {
        // As in Istio 1.32, whose istiod does not read it.
        verdict.warn(
            &at.field("backendUtilization"),
            "has no effect; requests are balanced as if it were not set",
        );
    }

    let zone_aware = &at.field("zoneAwareLbSetting");

    if locality_lb_setting.is_some() && zone_aware_lb_setting.is_some() {
        verdict.error(
            zone_aware,
            "is set together with localityLbSetting; keep one of them",
        );
    }

    locality_setting(
        verdict,
        &at.field("localityLbSetting"),
        locality_lb_setting.as_ref(),
        outlier.is_some(),
    );

    zone_aware_setting(
        verdict,
        zone_aware,
        zone_aware_lb_setting.as_ref(),
        outlier.is_some(),
    );

    if let Some(warm_up) = warm_up {
        warmup(verdict, &at.field("warmup"), warm_up);
    }
}

/// Validates consistent hashing.
fn consistent_hash(verdict: &mut Verdict, at: &Path<'_>, hash: &ConsistentHashLb) {
    let keys = [
        hash.http_header_name.is_some(),
        hash.http_cookie.is_some(),
        hash.use_source_ip.is_some(),
        hash.http_query_parameter_name.is_some(),
    ];

    if keys.into_iter().filter(|set| *set).count() > 1 {
        verdict.error(
            at,
            "has more than one key; keep one of httpHeaderName, httpCookie, useSourceIp and httpQueryParameterName",
        );
    }

    if hash.ring_hash.is_some() && hash.maglev.is_some() {
        verdict.error(
            &at.field("maglev"),
            "is set together with ringHash; keep one of them",
        );
    }

    if let Some(cookie) = &hash.http_cookie {
        http_cookie(verdict, &at.field("httpCookie"), cookie);
    }

    if hash.minimum_ring_size != 0 {
        let at = &at.field("minimumRingSize");
        verdict.warn(at, "is deprecated; use ringHash.minimumRingSize");
        if hash.ring_hash.is_some() || hash.maglev.is_some() {
            verdict.error(at, "is set together with ringHash or maglev; remove it");
        }
    }

    if let Some(maglev) = &hash.maglev {
        let at = at.field("maglev");
        if maglev.table_size >= MAGLEV_LIMIT || !is_prime(maglev.table_size) {
            let size = maglev.table_size;
            verdict.error(
                &at.field("tableSize"),
                format!("{size} is not a table size; write a prime number below {MAGLEV_LIMIT}, such as 65537"),
            );
        }
    }
}

/// Validates the cookie whose value is the key.
fn http_cookie(verdict: &mut Verdict, at: &Path<'_>, cookie: &HttpCookie) {
    if cookie.name.is_empty() {
        verdict.error(
            &at.field("name"),
            "is missing; write the name of the cookie",
        );
    }

    let mut names = BTreeSet::new();
    let attributes = at.field("attributes");
    for (index, attribute) in cookie.attributes.iter().enumerate() {
        let item = attributes.item(index);
        let at = &item.field("name");

        if attribute.name.is_empty() {
            verdict.error(
                at,
                "is missing; write the name of the attribute, such as SameSite",
            );
        } else if !names.insert(attribute.name.as_str()) {
            verdict.error(
                at,
                format!(
                    "{:?} is set a second time; set each attribute once",
                    attribute.name
                ),
            );
        }
    }
}

/// Validates the slow start of new endpoints.
fn warmup(verdict: &mut Verdict, at: &Path<'_>, warmup: &WarmupConfiguration) {
    let WarmupConfiguration {
        duration: time,
        minimum_percent,
        aggression,
    } = warmup;
    let outcome = time.map_or_else(
        || Err("is missing; write the duration of the warmup".to_owned()),
        duration,
    );
    verdict.check(&at.field("duration"), outcome);

    if let Some(percent) = minimum_percent.filter(|percent| *percent > 100.0) {
        verdict.error(
            &at.field("minimumPercent"),
            format!("{percent} is too large; write at most 100"),
        );
    }

    if let Some(aggression) = aggression.filter(|aggression| *aggression <= 0.0) {
        verdict.error(
            &at.field("aggression"),
            format!("{aggression} is not positive; write more than 0"),
        );
    }
}

/// Whether the number is prime for Envoy, which includes 1.
fn is_prime(number: u64) -> bool {
    match number {
        0 => false,
        1..4 => true,
        _ if number.is_multiple_of(2) => false,
        _ => (3..)
            .step_by(2)
            .take_while(|factor: &u64| factor * factor <= number)
            .all(|factor| !number.is_multiple_of(factor)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_detected_like_in_envoy() {
        let primes: Vec<u64> = (0..30).filter(|number| is_prime(*number)).collect();
        assert_eq!(primes, [1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert!(is_prime(65537) && !is_prime(65536) && !is_prime(2209));
    }
}
