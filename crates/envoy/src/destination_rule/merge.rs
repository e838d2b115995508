//! Several rules of one host: which are merged and which stay separate.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::policy::with_backend_policy;
use super::selector_labels;
use navarch_api::istio::{DestinationRule, Subset, TrafficPolicy};
use navarch_api::object::{NamespacedName, Object};
use navarch_registry::model::Labels;

/// One or more merged rules of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedRule {
    /// The first rule, which names the result.
    pub name: NamespacedName,
    /// All merged rules, including the first.
    pub from: Vec<NamespacedName>,
    /// The policy of the host.
    pub policy: Option<Arc<TrafficPolicy>>,
    /// The subsets, with unique names.
    pub subsets: Vec<Arc<Subset>>,
    /// Client workloads to which it applies; `None` means all.
    pub selector: Option<Labels>,
    /// Namespaces that see it; empty means the mesh default.
    pub export_to: BTreeSet<String>,
    author: Author,
}

/// The origin of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    User,
    /// The control plane, from a policy of the Gateway API. It only sets fields that users leave
    /// unset.
    BackendPolicy,
}

/// The annotation with the source objects of a rule; users may not set it.
const PARENTS: &str = "internal.istio.io/parents";

impl Author {
    /// The origin of this rule.
    fn of(rule: &Object<DestinationRule>) -> Self {
        if rule.meta.annotations.contains_key(PARENTS) {
            Self::BackendPolicy
        } else {
            Self::User
        }
    }
}

impl MergedRule {
    /// A single rule.
    fn new(rule: &Object<DestinationRule>) -> Self {
        Self {
            name: rule.meta.key(),
            from: vec![rule.meta.key()],
            policy: rule.spec.traffic_policy.as_deref().cloned().map(Arc::new),
            subsets: unique_subsets(&rule.spec.subsets),
            selector: rule
                .spec
                .workload_selector
                .as_ref()
                .map(|selector| selector_labels(&selector.match_labels)),
            export_to: export_to(&rule.spec),
            author: Author::of(rule),
        }
    }

    /// The same subsets without any traffic policy.
    pub(super) fn without_policies(&self) -> Self {
        let bare = |subset: &Arc<Subset>| {
            Arc::new(Subset {
                name: subset.name.clone(),
                labels: subset.labels.clone(),
                traffic_policy: None,
            })
        };
        Self {
            policy: None,
            subsets: self.subsets.iter().map(bare).collect(),
            ..self.clone()
        }
    }

    /// The subset of this name.
    #[must_use]
    pub fn subset(&self, name: &str) -> Option<&Arc<Subset>> {
        self.subsets.iter().find(|subset| subset.name == name)
    }

    /// Whether every namespace sees it.
    pub(super) fn is_public(&self) -> bool {
        self.export_to.is_empty() || self.export_to.contains("*")
    }

    /// Merges settings of a later rule of the same host that this one does not have.
    fn absorb(&mut self, rule: &Object<DestinationRule>) {
        self.from.push(rule.meta.key());

        for subset in &rule.spec.subsets {
            if self.subset(&subset.name).is_none() {
                self.subsets.push(Arc::new(subset.clone()));
            }
        }

        let theirs = rule.spec.traffic_policy.as_deref();
        let merged = match (self.author, Author::of(rule)) {
            (Author::User, Author::BackendPolicy) => {
                with_backend_policy(self.policy.as_deref(), theirs)
            }
            (Author::BackendPolicy, Author::User) => {
                with_backend_policy(theirs, self.policy.as_deref())
            }
            (Author::User, Author::User) | (Author::BackendPolicy, Author::BackendPolicy) => {
                if self.policy.is_some() {
                    return;
                }
                theirs.cloned()
            }
        };

        self.policy = merged.map(Arc::new);
    }
}

/// The subsets as written, the first of each name.
fn unique_subsets(subsets: &[Subset]) -> Vec<Arc<Subset>> {
    let mut seen = BTreeSet::new();
    subsets
        .iter()
        .filter(|subset| seen.insert(&subset.name))
        .map(|subset| Arc::new(subset.clone()))
        .collect()
}

/// Merges the rules of one host, in the given order.
///
/// Rules with unequal selectors stay separate. With `by_export`, so do rules with unequal
/// `exportTo`, except that a rule for a wider audience also completes those for narrower ones.
pub(super) fn merge_rules<'a>(
    rules: impl Iterator<Item = &'a Object<DestinationRule>>,
    by_export: bool,
) -> Vec<Arc<MergedRule>> {
    let mut merged: Vec<MergedRule> = Vec::new();

    for rule in rules {
        let incoming = MergedRule::new(rule);
        let mut apart = true;
        for existing in &mut merged {
            if by_export {
                apart = incoming.export_to != existing.export_to;
                let wider = !existing.export_to.is_empty()
                    && incoming.export_to.is_superset(&existing.export_to);
                if apart && !wider {
                    continue;
                }
            }

            match (&existing.selector, &incoming.selector) {
                (Some(theirs), Some(ours)) if theirs != ours => {
                    apart = true;
                    continue;
                }
                (Some(_), Some(_)) | (None, None) => apart = false,
                (Some(_), None) | (None, Some(_)) => {}
            }

            existing.absorb(rule);
        }

        if apart {
            merged.push(incoming);
        }
    }

    merged.into_iter().map(Arc::new).collect()
}

/// The `exportTo` of a rule: `.` for a rule with a selector, else its list; empty leaves it to the
/// mesh default.
pub(super) fn export_to(rule: &DestinationRule) -> BTreeSet<String> {
    match rule.workload_selector {
        Some(_) => BTreeSet::from([".".to_owned()]),
        None => rule.export_to.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::istio::PolicyWorkloadSelector;
    use navarch_api::object::ObjectMeta;

    fn rule(
        name: &str,
        subset: &str,
        export_to: &[&str],
        selects: Option<&str>,
    ) -> Object<DestinationRule> {
        Object {
            meta: ObjectMeta {
                key: NamespacedName::new("", name),
                ..ObjectMeta::default()
            },
            spec: DestinationRule {
                host: "reviews.shop.svc.cluster.local".to_owned(),
                subsets: vec![Subset {
                    name: subset.to_owned(),
                    ..Subset::default()
                }],
                export_to: export_to.iter().map(|&name| name.to_owned()).collect(),
                workload_selector: selects.map(|app| PolicyWorkloadSelector {
                    match_labels: [("app".to_owned(), app.to_owned())].into(),
                }),
                ..DestinationRule::default()
            },
        }
    }

    /// The names of the subsets of each merged rule.
    fn subsets(rules: &[Object<DestinationRule>]) -> Vec<Vec<String>> {
        let merged = merge_rules(rules.iter(), true);
        merged
            .iter()
            .map(|rule| {
                rule.subsets
                    .iter()
                    .map(|subset| subset.name.clone())
                    .collect()
            })
            .collect()
    }

    #[test]
    fn rules_for_the_same_audience_become_one() {
        let rules = [
            rule("a", "v1", &[], None),
            rule("b", "v2", &[], None),
            rule("c", "v1", &[], None),
        ];
        assert_eq!(subsets(&rules), [["v1", "v2"]]);
    }

    #[test]
    fn rules_for_unequal_audiences_stay_apart() {
        let rules = [
            rule("a", "v1", &["bank"], None),
            rule("b", "v2", &["mall"], None),
        ];
        assert_eq!(subsets(&rules), [["v1"], ["v2"]]);
    }

    #[test]
    fn unequal_selectors_stay_apart() {
        let rules = [
            rule("a", "v1", &[], Some("web")),
            rule("b", "v2", &[], Some("cart")),
        ];
        assert_eq!(subsets(&rules), [["v1"], ["v2"]]);
        let rules = [
            rule("a", "v1", &[], Some("web")),
            rule("b", "v2", &[], Some("web")),
        ];
        assert_eq!(subsets(&rules), [["v1", "v2"]]);
    }

    #[test]
    fn destination_rules_with_and_without_selector_are_not_merged() {
        let rules = [
            rule("a", "v1", &[], Some("web")),
            rule("b", "v2", &[], None),
        ];
        assert_eq!(subsets(&rules), [["v1"], ["v2"]]);
    }
}
