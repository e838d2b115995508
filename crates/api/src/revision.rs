//! Which objects a control plane of a revision reads: those of all revisions, of its own, and of its
//! tags.
//!
//! A tag is a name of a revision, which operators move from one revision to another. As in istiod's
//! tag watcher, it is declared by a MutatingWebhookConfiguration, or by a Service of the control
//! plane's namespace, with the labels [`TAG_LABEL`] and [`REVISION_LABEL`].

use std::collections::BTreeSet;

use crate::gateway_api;
use crate::json_object::ObjectKind;
use crate::mcs;

/// The label of objects with the revision, or the tag, of the control planes that read them.
pub const REVISION_LABEL: &str = "istio.io/rev";
/// The label that names a tag.
pub const TAG_LABEL: &str = "istio.io/tag";

/// A revision of the control plane.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// Its name; a control plane without one reads the objects of all revisions.
    pub name: &'a str,
    /// The tags that refer to it.
    pub tags: &'a BTreeSet<String>,
}

impl Revision<'_> {
    /// Whether its control plane reads an object of an API group and a kind with this value of
    /// [`REVISION_LABEL`].
    ///
    /// It reads Kubernetes' own objects and Gateways of the Gateway API of all revisions: proxies of
    /// this revision send to waypoints of others, and routes of this revision attach to Gateways of
    /// others. As in istiod, only their own revision deploys them and writes their status.
    #[must_use]
    pub fn reads(self, group: &str, kind: &str, label: Option<&str>) -> bool {
        let gateway = ObjectKind::new(gateway_api::GROUP, "Gateway");
        let is_gateway = group == gateway.group && kind == gateway.kind;
        let selects = !self.name.is_empty() && is_defined(group) && !is_gateway;
        label
            .filter(|_| selects)
            .is_none_or(|label| label == self.name || self.tags.contains(label))
    }
}

/// Whether the kinds of an API group are defined at run time, by CustomResourceDefinitions: they can
/// be missing, added and removed.
#[must_use]
pub fn is_defined(group: &str) -> bool {
    group.ends_with(".istio.io")
        || group == mcs::api().group
        || matches!(
            group,
            gateway_api::GROUP | gateway_api::EXPERIMENTAL_GROUP | gateway_api::INFERENCE_GROUP
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_other_revisions_are_not_read() {
        let tags = BTreeSet::from(["prod".to_owned()]);
        let canary = Revision {
            name: "canary",
            tags: &tags,
        };
        let policy =
            |label: Option<&str>| canary.reads("security.istio.io", "AuthorizationPolicy", label);
        assert!(policy(None) && policy(Some("canary")) && policy(Some("prod")));
        assert!(!policy(Some("stable")) && !policy(Some("")));

        let stable = Some("stable");
        assert!(canary.reads("", "Pod", stable));
        assert!(canary.reads(gateway_api::GROUP, "Gateway", stable));
        assert!(!canary.reads("networking.istio.io", "Gateway", stable));

        let all = Revision { name: "", ..canary };
        assert!(all.reads("security.istio.io", "AuthorizationPolicy", stable));
    }
}
