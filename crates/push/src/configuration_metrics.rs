//! Metrics of the current configuration: its size and its conflicts.

use std::collections::BTreeMap;
use std::fmt;

use imbl::OrdSet;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use super::notice::Notice;
use super::rollout::RolloutProgress;
use super::worker::CurrentSnapshot;
use navarch_api::object::Kind;

/// The gauges of notices, by istiod's names.
const NOTICE_GAUGES: [(&str, &str); 7] = [
    (
        "pilot_vservice_dup_domain",
        "Virtual hosts with a domain that another one already has",
    ),
    (
        "pilot_destrule_subsets",
        "Hosts of which DestinationRules name a subset twice",
    ),
    (
        "pilot_dns_cluster_without_endpoints",
        "STRICT_DNS clusters that are skipped because they have no endpoints",
    ),
    (
        "pilot_conflict_outbound_listener_tcp_over_current_tcp",
        "Listeners with conflicting services; the first service wins",
    ),
    (
        "pilot_conflict_inbound_listener",
        "Workload ports that services use with different protocols",
    ),
    (
        "pilot_endpoint_not_ready",
        "Proxies listed as not ready by a service without selector",
    ),
    ("pilot_eds_no_instances", "Clusters without endpoints"),
];

/// The metric of EnvoyFilters.
const PATCHES_METRIC: &str = "pilot_envoy_filter_status";

/// Computes the metrics at each scrape.
#[derive(Debug)]
pub struct ConfigurationMetrics {
    /// The snapshot that is counted.
    pub current: CurrentSnapshot,
    /// Whether there is a metric for each EnvoyFilter (`PILOT_ENVOY_FILTER_STATS`).
    pub tells_patches: bool,
}

/// Writes a gauge without labels.
fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: usize) -> fmt::Result {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// The value of each gauge.
fn count(notices: &OrdSet<Notice>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for notice in notices {
        match notice {
            Notice::Subject { gauge, .. } => *counts.entry(*gauge).or_default() += 1,
            Notice::Patched { .. } | Notice::Failed { .. } => {}
        }
    }
    counts
}

impl Collector for ConfigurationMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let context = self.current.context();
        gauge(
            &mut encoder,
            "pilot_services",
            "Services in the mesh",
            context.directory.services.len(),
        )?;

        let routes = context.objects.count(Kind::VirtualService);
        gauge(
            &mut encoder,
            "pilot_virt_services",
            "VirtualServices in the mesh",
            routes,
        )?;

        let quarantined = context.quarantined.len();
        gauge(
            &mut encoder,
            "navarch_quarantined_objects",
            "Objects quarantined because proxies reject them",
            quarantined,
        )?;

        let stopped = context
            .rollouts
            .values()
            .filter(|rollout| rollout.is_stopped())
            .count();
        let under_way = context.rollouts.len() - stopped;
        gauge(
            &mut encoder,
            "navarch_rollouts",
            "Rollouts in progress",
            under_way,
        )?;

        let waiting = context
            .rollouts
            .values()
            .filter(|rollout| matches!(rollout.progress, RolloutProgress::Waiting))
            .count();
        gauge(
            &mut encoder,
            "navarch_rollouts_waiting",
            "Rollouts in progress whose first stage has not begun",
            waiting,
        )?;

        gauge(
            &mut encoder,
            "navarch_rollouts_stopped",
            "Stopped rollouts",
            stopped,
        )?;

        let notices = self.current.notices();
        let counts = count(&notices);

        for (name, help) in NOTICE_GAUGES {
            gauge(
                &mut encoder,
                name,
                help,
                counts.get(name).copied().unwrap_or_default(),
            )?;
        }

        if !self.tells_patches {
            return Ok(());
        }

        let one = ConstGauge::new(1_i64);
        let mut patches = encoder.encode_descriptor(
            PATCHES_METRIC,
            "EnvoyFilters with applied patches",
            None,
            one.metric_type(),
        )?;

        for notice in notices.iter() {
            if let Notice::Patched { filter, kind } = notice {
                let labels = [
                    ("name", filter.as_ref()),
                    ("patch", *kind),
                    ("result", "applied"),
                ];
                one.encode(patches.encode_family(&labels)?)?;
            }
        }

        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_counts_once_for_its_gauge() {
        let subject = |gauge, subject: &str| Notice::Subject {
            gauge,
            subject: subject.into(),
        };
        let patched = Notice::Patched {
            filter: "shop/a".into(),
            kind: "cluster",
        };
        let notices = [
            subject("a", "x"),
            subject("a", "y"),
            subject("b", "x"),
            patched,
        ]
        .into_iter()
        .collect();
        assert_eq!(count(&notices), [("a", 2), ("b", 1)].into());
    }
}
