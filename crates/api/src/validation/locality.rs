//! Rules for load balancing by locality and zone.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;
use super::path::Path;
use crate::istio::{
    Distribute, Failover, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting,
};

/// Labels with a workload's locality.
const TOPOLOGY_LABELS: [&str; 3] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.istio.io/subzone",
];

/// Validates locality preferences.
pub(super) fn locality_setting(
    verdict: &mut Verdict,
    at: &Path<'_>,
    setting: Option<&LocalityLoadBalancerSetting>,
    has_outlier_detection: bool,
) {
    let Some(LocalityLoadBalancerSetting {
        distribute,
        failover,
        failover_priority,
        enabled: _,
    }) = setting
    else {
        return;
    };

    if !distribute.is_empty() && !failover.is_empty() {
        verdict.error(
            &at.field("failover"),
            "is set together with distribute; keep one of them",
        );
        return;
    }

    let topology = failover_priority
        .iter()
        .position(|label| TOPOLOGY_LABELS.contains(&label.as_str()));
    if let Some(index) = topology.filter(|_| !failover.is_empty()) {
        let labels = at.field("failoverPriority");
        verdict.error(
            &labels.item(index),
            "is a topology label, but failover is set; drop the label or failover",
        );
        return;
    }

    if !distribution(verdict, &at.field("distribute"), distribute) {
        return;
    }

    outlier_detection_for_failover(
        verdict,
        at,
        failover,
        failover_priority,
        has_outlier_detection,
    );

    regions(verdict, &at.field("failover"), failover);
}

/// Validates zone preferences.
pub(super) fn zone_aware_setting(
    verdict: &mut Verdict,
    at: &Path<'_>,
    setting: Option<&ZoneAwareLoadBalancerSetting>,
    has_outlier_detection: bool,
) {
    let Some(ZoneAwareLoadBalancerSetting {
        enabled: _,
        failover,
        failover_priority,
        min_cluster_size: _,
    }) = setting
    else {
        return;
    };

    let labels = at.field("failoverPriority");

    for (index, label) in failover_priority.iter().enumerate() {
        if TOPOLOGY_LABELS.contains(&label.as_str()) {
            verdict.error(
                &labels.item(index),
                "is a topology label, but the load balancer prefers zones without it; remove it",
            );
        }
    }

    outlier_detection_for_failover(
        verdict,
        at,
        failover,
        failover_priority,
        has_outlier_detection,
    );

    regions(verdict, &at.field("failover"), failover);
}

/// Warns of failover without outlier detection, which would trigger it.
fn outlier_detection_for_failover(
    verdict: &mut Verdict,
    at: &Path<'_>,
    failover: &[Failover],
    failover_priority: &[String],
    has_outlier_detection: bool,
) {
    if has_outlier_detection || (failover.is_empty() && failover_priority.is_empty()) {
        return;
    }
    let field = if failover.is_empty() {
        "failoverPriority"
    } else {
        "failover"
    };
    verdict.warn(
        &at.field(field),
        "has no effect without outlierDetection, which detects failures; set it too",
    );
}

/// Validates the failover between regions.
fn regions(verdict: &mut Verdict, at: &Path<'_>, failover: &[Failover]) {
    for (index, Failover { from, to }) in failover.iter().enumerate() {
        let at = &at.item(index);

        if from == to {
            verdict.error(
                &at.field("to"),
                format!("{to:?} is the same region as from; write another"),
            );
        }

        for (field, region) in [("from", from), ("to", to)] {
            if region.contains('/') {
                verdict.error(
                    &at.field(field),
                    format!("{region:?} is more than a region; write only the region"),
                );
            }
            if region.contains('*') {
                verdict.error(
                    &at.field(field),
                    format!("{region:?} has a wildcard; write the name of a region"),
                );
            }
        }
    }
}

/// Validates fixed shares; returns false if a share is invalid and no further error should be
/// reported.
fn distribution(verdict: &mut Verdict, at: &Path<'_>, distribute: &[Distribute]) -> bool {
    let mut sources = Localities::default();

    for (index, Distribute { from, to }) in distribute.iter().enumerate() {
        let item = at.item(index);
        let shares = item.field("to");

        for (locality, share) in to {
            if !(1..=100).contains(share) {
                verdict.error(
                    &shares.field(locality),
                    format!("{share} is not a valid weight; write 1 to 100"),
                );
                return false;
            }
        }

        let total: u64 = to.values().map(|share| u64::from(*share)).sum();
        if total != 100 {
            verdict.error(
                &shares,
                format!("adds up to {total}; the weights of a locality must add up to 100"),
            );
            return false;
        }

        let mut targets = Localities::default();
        if let Some((locality, reason)) = to
            .keys()
            .find_map(|locality| targets.add(locality).err().map(|reason| (locality, reason)))
        {
            verdict.error(&shares.field(locality), reason);
        }
        if !sources.broken
            && let Err(reason) = sources.add(from)
        {
            sources.broken = true;
            verdict.error(&item.field("from"), reason);
        }
    }

    true
}

/// The localities so far, for finding overlaps.
#[derive(Default)]
struct Localities<'a> {
    /// Zones by region, and subzones by zone; a zone or subzone `*` matches all.
    regions: BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>>,
    /// Whether an error was found, which ends the checks.
    broken: bool,
}

impl<'a> Localities<'a> {
    /// Adds a locality, unless its form is wrong or one added before covers it.
    fn add(&mut self, locality: &'a str) -> Result<(), String> {
        if locality.matches('*').count() > 1
            || locality
                .find('*')
                .is_some_and(|place| place + 1 != locality.len())
        {
            return Err(format!("{locality:?} may have one \"*\" only, at its end"));
        }
        let mut parts = locality.splitn(3, '/');
        let region = parts.next().unwrap_or_default();
        let zone = parts.next();
        let subzone = parts.next();

        if region.is_empty() || zone == Some("") || subzone == Some("") {
            return Err(format!(
                "{locality:?} has an empty part; write region, region/zone or region/zone/subzone"
            ));
        }

        let overlap = || {
            Err(format!(
                "{locality:?} is covered by a locality before it; remove one of them"
            ))
        };
        if self.regions.contains_key("*") {
            return overlap();
        }

        let Some(zone) = zone else {
            return match self.regions.insert(region, all_zones()) {
                None => Ok(()),
                Some(_) => overlap(),
            };
        };

        let zones = self.regions.entry(region).or_default();
        if zones.contains_key("*") {
            return overlap();
        }

        let Some(subzone) = subzone else {
            return match zones.insert(zone, BTreeSet::from(["*"])) {
                None => Ok(()),
                Some(_) => overlap(),
            };
        };

        let subzones = zones.entry(zone).or_default();
        if subzones.contains("*") || !subzones.insert(subzone) {
            return overlap();
        }

        Ok(())
    }
}

/// All zones of a region with all their subzones.
fn all_zones() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    BTreeMap::from([("*", BTreeSet::from(["*"]))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether all can be added.
    fn apart(localities: &[&str]) -> bool {
        let mut seen = Localities::default();
        localities.iter().all(|locality| seen.add(locality).is_ok())
    }

    #[test]
    fn localities_must_not_be_covered_by_those_before() {
        assert!(
            apart(&["a", "b"])
                && apart(&["a/1", "a/2"])
                && apart(&["a/1/x", "a/1/y"])
                && apart(&["a/1", "b/1"])
        );

        assert!(
            !apart(&["*", "a"])
                && !apart(&["a", "a"])
                && !apart(&["a", "a/1"])
                && !apart(&["a/*", "a/1"])
        );

        assert!(
            !apart(&["a/1", "a/1/x"]) && !apart(&["a/1/*", "a/1/x"]) && !apart(&["a/1/x", "a/1/x"])
        );
        assert!(apart(&["a/1", "a/*"]) && !apart(&["a/1", "a"]));
        assert!(
            !apart(&["a//x"])
                && !apart(&["*/1"])
                && !apart(&["a/**"])
                && !apart(&[""])
                && apart(&["a*"])
        );
    }
}
