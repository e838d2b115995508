//! Weights and priorities of localities, relative to the proxy's locality.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::group::{Group, Member};
use super::locality_setting::{CLUSTER, LocalitySetting, NETWORK, NODE, REGION, SUBZONE, ZONE};
use navarch_api::istio::{
    Distribute, Failover, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting,
};
use navarch_push::proxy::Locality;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The proxy's values of some labels, including those of its locality; empty for missing ones.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct LabelValues(Vec<String>);

/// Orders groups. `fails_over` means that outlier detection is enabled, without which priorities
/// would be harmful; `labelled` means that the workloads of the endpoints are known.
pub(crate) fn arrange(
    view: &View<'_>,
    setting: &LocalitySetting,
    groups: &mut Vec<Group>,
    fails_over: bool,
    labelled: bool,
) {
    match setting {
        LocalitySetting::Locality { setting, forced } => {
            if !setting.distribute.is_empty() {
                distribute(&view.proxy().locality(), &setting.distribute, groups);
            } else if fails_over || *forced {
                arrange_by_locality(view, setting, groups, labelled);
            }
        }
        LocalitySetting::ZoneAware(setting) => {
            if setting.enabled != Some(false) {
                arrange_by_region(view, setting, groups, labelled);
            }
        }
    }
}

/// Priorities by labels if the setting lists them, and by locality unless it lists only labels.
fn arrange_by_locality(
    view: &View<'_>,
    setting: &LocalityLoadBalancerSetting,
    groups: &mut Vec<Group>,
    labelled: bool,
) {
    let by_labels = !setting.failover_priority.is_empty();
    if by_labels && labelled {
        arrange_by_labels(view, &setting.failover_priority, groups);
    }

    if !by_labels || !setting.failover.is_empty() {
        let locality = view.proxy().locality();
        prioritise(groups, 5, |group| {
            match distance(&locality, &group.locality) {
                3 => match setting
                    .failover
                    .iter()
                    .find(|failover| *failover.from == *locality.region)
                {
                    Some(failover) if *failover.to != *group.locality.region => 4,
                    Some(_) | None => 3,
                },
                near => near,
            }
        });
    }
}

/// Priorities by labels if the setting lists them, then by region, so that Envoy balances only
/// among zones of one region.
fn arrange_by_region(
    view: &View<'_>,
    setting: &ZoneAwareLoadBalancerSetting,
    groups: &mut Vec<Group>,
    labelled: bool,
) {
    if !setting.failover_priority.is_empty() && labelled {
        arrange_by_labels(view, &setting.failover_priority, groups);
    }

    let region = view.proxy().locality().region;
    let takes_over = |failover: &&Failover| *failover.from == *region;
    prioritise(groups, 3, |group| {
        if group.locality.region == region {
            0
        } else if setting
            .failover
            .iter()
            .find(takes_over)
            .is_some_and(|f| *f.to == *group.locality.region)
        {
            1
        } else {
            2
        }
    });
}

/// The distance of two localities: 0 for the same, 3 for different regions.
fn distance(from: &Locality, to: &Locality) -> u32 {
    if from.region != to.region {
        3
    } else if from.zone != to.zone {
        2
    } else {
        u32::from(from.sub_zone != to.sub_zone)
    }
}

/// Refines the priorities of groups by `rank`, which is below `ranks`, and closes the gaps.
fn prioritise(groups: &mut [Group], ranks: u32, rank: impl Fn(&Group) -> u32) {
    for group in groups.iter_mut() {
        group.priority = group
            .priority
            .saturating_mul(ranks)
            .saturating_add(rank(group));
    }
    close_gaps(groups);
}

/// Renumbers priorities from 0: Envoy rejects gaps.
fn close_gaps(groups: &mut [Group]) {
    let used: BTreeSet<u32> = groups.iter().map(|group| group.priority).collect();
    let places: BTreeMap<u32, u32> = used.into_iter().zip(0..).collect();
    for group in groups {
        group.priority = *places
            .get(&group.priority)
            .expect("the map has the priorities of all groups");
    }
}

/// Splits groups by the number of labels, most important first, that endpoints share with the
/// proxy.
fn arrange_by_labels(view: &View<'_>, priority: &[String], groups: &mut Vec<Group>) {
    let own = view.derived(&LabelValues(priority.to_vec()));
    let wanted: Vec<(&str, &str)> = priority
        .iter()
        .zip(own.iter())
        .map(
            |(entry, own)| match entry.split('=').collect::<Vec<_>>().as_slice() {
                [label, value] => (*label, *value),
                [label, ..] => (*label, &**own),
                [] => ("", ""),
            },
        )
        .collect();

    let mut split = Vec::with_capacity(groups.len());

    for group in groups.drain(..) {
        let mut parts: BTreeMap<u32, Vec<Member>> = BTreeMap::new();

        for member in group.members {
            parts
                .entry(label_rank(&member, &wanted))
                .or_default()
                .push(member);
        }

        for (priority, members) in parts {
            let mut part = Group {
                locality: group.locality.clone(),
                priority,
                weight: None,
                members,
            };
            part.set_weight();
            split.push(part);
        }
    }

    close_gaps(&mut split);
    *groups = split;
}

/// 0 if all labels are equal. Another network ranks after every endpoint of the proxy's own.
fn label_rank(member: &Member, wanted: &[(&str, &str)]) -> u32 {
    let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    let mut other_network = 0;
    for ((label, value), missed) in wanted.iter().zip((1..=count).rev()) {
        if member.behind.label(label) == *value {
            continue;
        }
        if missed == count && *label == NETWORK {
            other_network = count;
            continue;
        }
        return other_network.saturating_add(missed);
    }
    other_network
}

/// Sets the weights of the localities in a setting, and removes the endpoints of all others.
fn distribute(locality: &Locality, settings: &[Distribute], groups: &mut [Group]) {
    let Some(setting) = settings
        .iter()
        .find(|setting| covers(&setting.from, locality))
    else {
        return;
    };

    let mut left: Vec<&mut Group> = groups.iter_mut().collect();

    for (pattern, share) in &setting.to {
        let (matched, rest): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|group| covers(pattern, &group.locality));
        left = rest;
        let total: u64 = matched
            .iter()
            .map(|group| u64::from(group.weight.unwrap_or(1)))
            .sum();

        for group in matched {
            let part = u64::from(group.weight.unwrap_or(1)).saturating_mul(u64::from(*share));
            // Rounded up, so that no locality with a share gets zero.
            match part.div_ceil(total.max(1)) {
                0 => {}
                share => group.weight = Some(u32::try_from(share).unwrap_or(u32::MAX)),
            }
        }
    }

    for group in left {
        group.members.clear();
    }
}

/// Whether `region/zone/subzone`, in which `*` and missing parts match anything, covers a locality.
fn covers(pattern: &str, locality: &Locality) -> bool {
    let pattern = Locality::parse(pattern);
    let part = |rule: &str, own: &str| rule == "*" || rule.is_empty() || rule == own;
    (&*pattern.region == "*" || pattern.region == locality.region)
        && part(&pattern.zone, &locality.zone)
        && part(&pattern.sub_zone, &locality.sub_zone)
}

impl Query for LabelValues {
    type Value = Vec<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let proxy = view.proxy();
        let labels = proxy.labels();
        let own = |key: &str| labels.get(key).cloned().unwrap_or_else(|| Arc::from(""));
        let placed = |part: Arc<str>, key: &str| if part.is_empty() { own(key) } else { part };
        let values = self
            .0
            .iter()
            .map(|entry| match entry.split('=').next().unwrap_or_default() {
                REGION => placed(proxy.locality().region, REGION),
                ZONE => placed(proxy.locality().zone, ZONE),
                SUBZONE => placed(proxy.locality().sub_zone, SUBZONE),
                CLUSTER => placed(Arc::from(proxy.cluster_id().as_str()), CLUSTER),
                // The node comes from the proxy even if the registry differs, as in Istio.
                NODE => proxy.meta("NODE_NAME").unwrap_or_else(|| Arc::from("")),
                NETWORK => match own(NETWORK) {
                    label if label.is_empty() => Arc::from(proxy.network().as_str()),
                    label => label,
                },
                key => own(key),
            });

        values.collect()
    }
}

impl ProxyQuery for LabelValues {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::group::EndpointWorkload;
    use navarch_proto::envoy::config::endpoint::v3::LbEndpoint;
    use navarch_registry::model::Workload;

    /// An endpoint with labels.
    fn member(labels: &[(&str, &str)]) -> Member {
        let own_labels = labels
            .iter()
            .map(|&(key, value)| (Arc::from(key), Arc::from(value)))
            .collect();
        Member {
            wire: LbEndpoint {
                load_balancing_weight: Some(1),
                ..LbEndpoint::default()
            },
            behind: EndpointWorkload::Workload(Arc::new(Workload {
                own_labels,
                ..Workload::default()
            })),
        }
    }

    /// A group of one endpoint.
    fn group(locality: &str, weight: u32) -> Group {
        Group {
            locality: Locality::parse(locality),
            priority: 0,
            weight: Some(weight),
            members: vec![member(&[])],
        }
    }

    #[test]
    fn priorities_have_no_gaps() {
        let mut groups = ["a/1", "b/1", "a/2"].map(|locality| group(locality, 1));
        let own = Locality::parse("a/1");
        prioritise(&mut groups, 5, |group| distance(&own, &group.locality));
        assert_eq!(groups.map(|group| group.priority), [0, 2, 1]);
    }

    #[test]
    fn shares_are_split_by_weight_and_others_get_none() {
        let mut groups = [
            group("a/1", 1),
            group("a/2", 3),
            group("b/1", 1),
            group("c/1", 1),
        ];

        let setting = Distribute {
            from: "a/*".to_owned(),
            to: [("a/*".to_owned(), 70), ("b/1".to_owned(), 30)].into(),
        };
        distribute(&Locality::parse("a/9"), &[setting], &mut groups);
        assert_eq!(
            groups.each_ref().map(|group| group.weight),
            [Some(18), Some(53), Some(30), Some(1)]
        );

        assert_eq!(
            groups.each_ref().map(|group| group.members.len()),
            [1, 1, 1, 0]
        );
    }

    #[test]
    fn the_first_label_that_differs_decides() {
        let wanted = [(NETWORK, "n"), ("a", "1"), ("b", "2")];
        for (labels, rank) in [
            (&[(NETWORK, "n"), ("a", "1"), ("b", "2")][..], 0),
            (&[(NETWORK, "n"), ("a", "1")][..], 1),
            (&[(NETWORK, "n"), ("b", "2")][..], 2),
            (&[(NETWORK, "m"), ("a", "1"), ("b", "2")][..], 3),
            (&[(NETWORK, "m"), ("b", "2")][..], 5),
        ] {
            assert_eq!(label_rank(&member(labels), &wanted), rank, "{labels:?}");
        }
    }
}
