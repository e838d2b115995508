//! Merges the plans of several control planes, each for its own proxies.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::plan::{
    MAX_DIFFS, MAX_NAMES, MAX_REQUESTS, MAX_RESOURCES, MAX_WALKED, Plan, RejectedResource,
    ResourcePlan, Totals,
};
use super::proposal::Action;
use super::traffic::TrafficChange;
use navarch_push::resource::ResourceType;

/// The plan of one control plane, with the digests that match its resources with those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanPart {
    /// The plan, with all workloads and requests.
    #[serde(flatten)]
    pub plan: Plan,
    /// The forms of the first 20,000 changed resources, by type and name; the first are those of
    /// the plan. Empty for control planes of other releases.
    #[serde(default)]
    pub forms: Vec<Form>,
    /// The number of proxy groups whose requests were not walked.
    #[serde(default)]
    pub unwalked: usize,
}

/// A distinct change of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// Its type, as in `cds`.
    pub r#type: String,
    /// A digest of its name and its versions before and after: equal at every control plane.
    pub digest: String,
    /// `Added`, `Changed` or `Removed`: only resources that differ have forms.
    pub action: Action,
    /// Proxies that would get the change.
    pub proxies: usize,
}

impl PlanPart {
    /// The plan of a single control plane.
    #[must_use]
    pub fn whole(self) -> Plan {
        let all = self
            .plan
            .types
            .values()
            .map(|totals| totals.added + totals.changed + totals.removed)
            .sum();
        cut(self.plan, all, self.unwalked)
    }

    /// Whether all resources are among its forms.
    fn is_complete(&self) -> bool {
        let all: usize = self
            .plan
            .types
            .values()
            .map(|totals| totals.added + totals.changed + totals.removed)
            .sum();
        self.forms.len() == all
    }
}

/// Merges the plans of control planes by name: proxies, workloads and bytes are summed, and an
/// equal change at proxies of several control planes counts once.
#[must_use]
pub fn merged(parts: Vec<(String, PlanPart)>) -> Plan {
    let (types, all) = totals(&parts);
    let unwalked = parts.iter().map(|(_, part)| part.unwalked).sum();
    let resources = resources(&parts);
    let traffic = traffic(&parts);
    let mut whole = Plan {
        types,
        resources,
        traffic,
        ..Plan::default()
    };

    for (place, part) in parts {
        if whole.asked.is_empty() {
            whole.objects.clone_from(&part.plan.objects);
        } else if whole.objects != part.plan.objects {
            let what = format!(
                "the verdict of {place} on the objects, which differs from that of {}",
                whole.asked.join(", ")
            );
            whole.more.push(what);
        }

        let Plan {
            proxies,
            reached,
            workloads,
            left_out,
            refused,
            bytes,
            ..
        } = part.plan;

        whole.proxies += proxies;
        whole.reached += reached;
        whole.bytes += bytes;
        for (workload, count) in workloads {
            *whole.workloads.entry(workload).or_default() += count;
        }

        let new: Vec<String> = left_out
            .into_iter()
            .filter(|part| !whole.left_out.contains(part))
            .collect();
        whole.left_out.extend(new);

        for one in refused {
            let same = |other: &&mut RejectedResource| {
                (&other.r#type, &other.name, &other.reason) == (&one.r#type, &one.name, &one.reason)
            };
            match whole.refused.iter_mut().find(same) {
                Some(other) => other.proxies += one.proxies,
                None => whole.refused.push(one),
            }
        }

        whole.asked.push(place);
    }

    cut(whole, all, unwalked)
}

/// The listed resources, each form once, by type and name.
fn resources(parts: &[(String, PlanPart)]) -> Vec<ResourcePlan> {
    let mut proxies: BTreeMap<&str, usize> = BTreeMap::new();
    for form in parts.iter().flat_map(|(_, part)| &part.forms) {
        *proxies.entry(&form.digest).or_default() += form.proxies;
    }

    let mut all: BTreeMap<(usize, String, String), ResourcePlan> = BTreeMap::new();

    for (place, part) in parts {
        for (at, resource) in part.plan.resources.iter().enumerate() {
            let digest = part
                .forms
                .get(at)
                .map_or_else(|| format!("{place} {at}"), |form| form.digest.clone());
            let proxies = proxies
                .get(digest.as_str())
                .copied()
                .unwrap_or(resource.proxies);

            let key = (order(&resource.r#type), resource.name.clone(), digest);
            let kept = all.entry(key).or_insert_with(|| ResourcePlan {
                proxies,
                ..resource.clone()
            });
            if kept.diff.is_empty() {
                kept.diff.clone_from(&resource.diff);
            }
        }
    }

    all.into_values().take(MAX_RESOURCES).collect()
}

/// The requests with a different outcome, each once, with all of its sources.
fn traffic(parts: &[(String, PlanPart)]) -> Vec<TrafficChange> {
    let mut all: BTreeMap<[&str; 3], BTreeSet<String>> = BTreeMap::new();

    for change in parts.iter().flat_map(|(_, part)| &part.plan.traffic) {
        let TrafficChange {
            request,
            from,
            before,
            after,
        } = change;
        all.entry([request, before, after])
            .or_default()
            .extend(from.iter().cloned());
    }

    let change = |([request, before, after], from): ([&str; 3], BTreeSet<String>)| {
        let [request, before, after] = [request, before, after].map(str::to_owned);
        TrafficChange {
            request,
            from,
            before,
            after,
        }
    };

    all.into_iter().map(change).collect()
}

/// Totals by type, and the number of all changes.
fn totals(parts: &[(String, PlanPart)]) -> (BTreeMap<String, Totals>, usize) {
    let mut types: BTreeMap<String, Totals> = BTreeMap::new();
    let is_complete = parts.iter().all(|(_, part)| part.is_complete());

    for (resource_type, totals) in parts.iter().flat_map(|(_, part)| &part.plan.types) {
        let sum = types.entry(resource_type.clone()).or_default();
        sum.proxies += totals.proxies;
        if !is_complete {
            // An upper bound.
            sum.added += totals.added;
            sum.changed += totals.changed;
            sum.removed += totals.removed;
        }
    }

    if is_complete {
        let mut seen = BTreeSet::new();
        let forms = parts.iter().flat_map(|(_, part)| &part.forms);
        for form in forms.filter(|form| seen.insert(&form.digest)) {
            types
                .entry(form.r#type.clone())
                .or_default()
                .count(form.action);
        }
    }

    let all = types
        .values()
        .map(|totals| totals.added + totals.changed + totals.removed)
        .sum();
    (types, all)
}

/// The index of a type.
fn order(short_name: &str) -> usize {
    ResourceType::ALL
        .iter()
        .position(|resource_type| resource_type.short_name() == short_name)
        .unwrap_or(usize::MAX)
}

/// A plan cut to the limits, with the number of omitted items. `all` is the number of its
/// resources.
fn cut(mut plan: Plan, all: usize, unwalked: usize) -> Plan {
    let workloads = plan.workloads.len().saturating_sub(MAX_NAMES);
    plan.workloads = std::mem::take(&mut plan.workloads)
        .into_iter()
        .take(MAX_NAMES)
        .collect();
    let requests = plan.traffic.len().saturating_sub(MAX_REQUESTS);
    plan.traffic.truncate(MAX_REQUESTS);
    let diffs = all.saturating_sub(MAX_DIFFS);

    for resource in plan.resources.iter_mut().skip(MAX_DIFFS) {
        resource.diff.clear();
    }

    let sorts = [
        (workloads, "more workloads".to_owned()),
        (diffs, "resources without a diff".to_owned()),
        (
            all.saturating_sub(MAX_RESOURCES),
            "more resources".to_owned(),
        ),
        (
            unwalked,
            format!(
                "classes of proxies beyond the first {MAX_WALKED}, whose requests are not evaluated"
            ),
        ),
        (
            requests,
            "more requests that are routed differently".to_owned(),
        ),
    ];

    let more = sorts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"));
    plan.more.extend(more);

    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MAX_FORMS;

    /// The part of a control plane with this number of proxies of a workload, with one route that
    /// is common to all and one that is its own.
    fn part(workload: &str, proxies: usize, own: &str) -> PlanPart {
        let resource = |name: &str| ResourcePlan {
            r#type: "rds".to_owned(),
            name: name.to_owned(),
            action: Action::Changed,
            proxies,
            diff: format!("- {name}"),
        };

        let form = |digest: &str| Form {
            r#type: "rds".to_owned(),
            digest: digest.to_owned(),
            action: Action::Changed,
            proxies,
        };

        let request = TrafficChange {
            request: "GET reviews:9080/".to_owned(),
            from: BTreeSet::from([workload.to_owned()]),
            before: "v1".to_owned(),
            after: "v2".to_owned(),
        };

        let rejected = RejectedResource {
            r#type: "rds".to_owned(),
            name: "80".to_owned(),
            proxies,
            reason: "it is odd".to_owned(),
        };

        let plan = Plan {
            proxies: proxies + 1,
            reached: proxies,
            workloads: BTreeMap::from([(workload.to_owned(), proxies)]),
            types: BTreeMap::from([(
                "rds".to_owned(),
                Totals {
                    changed: 2,
                    proxies,
                    ..Totals::default()
                },
            )]),
            resources: vec![resource("80"), resource("90")],
            traffic: vec![request],
            left_out: vec!["a route".to_owned()],
            refused: vec![rejected],
            bytes: 10 * proxies,
            ..Plan::default()
        };

        PlanPart {
            plan,
            forms: vec![form("of all"), form(own)],
            unwalked: 0,
        }
    }

    #[test]
    fn merged_plans_deduplicate_resources_and_add_up_proxies() {
        let whole = merged(vec![
            ("a".to_owned(), part("shop/web", 3, "of a")),
            ("b".to_owned(), part("shop/api", 4, "of b")),
        ]);
        assert_eq!((whole.proxies, whole.reached, whole.bytes), (9, 7, 70));
        assert_eq!(
            whole.workloads,
            BTreeMap::from([("shop/api".to_owned(), 4), ("shop/web".to_owned(), 3)])
        );

        assert_eq!(
            whole.types["rds"],
            Totals {
                changed: 3,
                proxies: 7,
                ..Totals::default()
            }
        );

        let counts: Vec<_> = whole
            .resources
            .iter()
            .map(|one| (one.name.as_str(), one.proxies))
            .collect();
        assert_eq!(counts, [("80", 7), ("90", 3), ("90", 4)]);
        assert_eq!((whole.traffic.len(), whole.traffic[0].from.len()), (1, 2));
        assert_eq!(
            (
                whole.left_out.len(),
                whole.refused.len(),
                whole.refused[0].proxies
            ),
            (1, 1, 7)
        );

        assert_eq!(
            (whole.asked, whole.more),
            (vec!["a".to_owned(), "b".to_owned()], vec![])
        );
    }

    #[test]
    fn plan_parts_of_another_release_are_added_without_deduplication() {
        let old = PlanPart {
            forms: Vec::new(),
            ..part("shop/api", 4, "of b")
        };
        let whole = merged(vec![
            ("a".to_owned(), part("shop/web", 3, "of a")),
            ("b".to_owned(), old),
        ]);
        assert_eq!(
            whole.types["rds"],
            Totals {
                changed: 4,
                proxies: 7,
                ..Totals::default()
            }
        );
        assert_eq!(whole.resources.len(), 4);
    }

    #[test]
    fn merging_a_single_plan_changes_nothing() {
        let mut one = part("shop/web", 3, "of a");
        one.plan.workloads = (0..MAX_NAMES + 2)
            .map(|n| (format!("shop/{n:03}"), 1))
            .collect();
        let alone = one.clone().whole();
        let whole = merged(vec![("a".to_owned(), one)]);
        assert_eq!(
            whole,
            Plan {
                asked: vec!["a".to_owned()],
                ..alone.clone()
            }
        );

        assert_eq!(
            (alone.workloads.len(), alone.more),
            (MAX_NAMES, vec!["2 more workloads".to_owned()])
        );
        const { assert!(MAX_FORMS >= MAX_RESOURCES, "what is named has a form") };
    }
}
