//! Visibility of services: `exportTo`, and the limit that mesh config sets for ServiceEntries.

use super::model::{ExportTo, Labels};
use navarch_api::mesh::{ServiceEntryVisibility, Visibility};
use navarch_api::names::Namespace;

impl ExportTo {
    /// Parses the items of an `exportTo` list in `namespace`. An empty list is `Unset`.
    #[must_use]
    pub fn parse<'a>(items: impl IntoIterator<Item = &'a str>, namespace: &Namespace) -> Self {
        let mut namespaces = Vec::new();
        let mut public = false;
        let mut nobody = false;

        for item in items {
            match item {
                "*" => public = true,
                "~" => nobody = true,
                "." => namespaces.push(namespace.clone()),
                name => namespaces.push(Namespace::new(name)),
            }
        }

        if public {
            return Self::Public;
        }

        if nobody {
            return Self::Nobody;
        }

        if namespaces.is_empty() {
            return Self::Unset;
        }

        namespaces.sort_unstable();
        namespaces.dedup();
        Self::Namespaces(namespaces)
    }

    /// Restricted by the mesh-wide visibility policy for a ServiceEntry of `namespace`.
    #[must_use]
    pub(super) fn capped(
        self,
        visibility: Visibility,
        namespace: &Namespace,
        default: &Self,
    ) -> Self {
        match visibility {
            Visibility::Unspecified | Visibility::Public => self,
            Visibility::None => Self::Nobody,
            Visibility::Namespace if self.is_exported_to(namespace, default) => {
                Self::Namespaces(vec![namespace.clone()])
            }
            Visibility::Namespace => Self::Nobody,
        }
    }
}

/// The visibility of ServiceEntries in a namespace with these labels. Ambient mode always applies
/// it, sidecars and gateways only if it is configured for them.
#[must_use]
pub fn visibility_in(policies: Option<&ServiceEntryVisibility>, labels: &Labels) -> Visibility {
    let Some(visibility) = policies else {
        return Visibility::Public;
    };
    let policy = visibility.policies.iter().find(|policy| {
        // A rule without a selector comes from a newer version of the API: it must not match by
        // accident.
        policy.matching_rules.iter().all(|rule| {
            rule.namespace_selector
                .as_ref()
                .is_some_and(|s| s.selects(labels))
        })
    });
    policy.map_or(visibility.default_visibility, |policy| policy.visibility)
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::mesh::{LabelSelector, ServiceEntryMatchRule, ServiceEntryVisibilityPolicy};

    #[test]
    fn export_to_all_overrides_none_and_a_dot_is_the_own_namespace() {
        let own = Namespace::new("shop");
        let parse = |items: &[&str]| ExportTo::parse(items.iter().copied(), &own);
        assert_eq!(parse(&[]), ExportTo::Unset);
        assert_eq!(parse(&["~", "*"]), ExportTo::Public);
        assert_eq!(parse(&["bank", "~"]), ExportTo::Nobody);
        let namespaces = vec![Namespace::new("bank"), Namespace::new("shop")];
        assert_eq!(
            parse(&[".", "bank", "shop"]),
            ExportTo::Namespaces(namespaces)
        );
    }

    #[test]
    fn a_cap_only_narrows() {
        let own = Namespace::new("shop");
        let capped = |export: ExportTo, cap| export.capped(cap, &own, &ExportTo::Unset);
        let private = ExportTo::Namespaces(vec![own.clone()]);
        assert_eq!(capped(ExportTo::Unset, Visibility::Namespace), private);
        assert_eq!(
            capped(
                ExportTo::Namespaces(vec![Namespace::new("bank")]),
                Visibility::Namespace
            ),
            ExportTo::Nobody
        );
        assert_eq!(capped(ExportTo::Public, Visibility::None), ExportTo::Nobody);
        assert_eq!(
            capped(ExportTo::Nobody, Visibility::Public),
            ExportTo::Nobody
        );
    }

    #[test]
    fn the_first_policy_that_matches_the_namespace_holds() {
        let policy = |labels: &[(&str, &str)], visibility| {
            let match_labels = labels
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect();
            let selector = LabelSelector {
                match_labels,
                match_expressions: vec![],
            };

            let matching_rules = vec![ServiceEntryMatchRule {
                namespace_selector: Some(selector),
            }];
            ServiceEntryVisibilityPolicy {
                visibility,
                matching_rules,
            }
        };

        let policies = vec![
            policy(&[("team", "a")], Visibility::None),
            policy(&[], Visibility::Namespace),
        ];
        let mut visibility = ServiceEntryVisibility {
            default_visibility: Visibility::Public,
            apply_to_sidecars: false,
            policies,
        };

        let labels = Labels::from([("team".into(), "a".into())]);
        assert_eq!(visibility_in(Some(&visibility), &labels), Visibility::None);
        assert_eq!(
            visibility_in(Some(&visibility), &Labels::new()),
            Visibility::Namespace
        );
        visibility.policies.clear();
        assert_eq!(
            visibility_in(Some(&visibility), &labels),
            Visibility::Public
        );
    }
}
