//! The rights that the control plane needs at the API server.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use navarch_answers::doctor::{Check, Health, Level, MAX_FINDINGS_PER_CHECK};

use super::MAX_CONCURRENT_REQUESTS;

/// A right that the control plane needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, such as `leases`.
    pub resource: String,
    /// The subresource, such as `status`; empty for the resource.
    pub subresource: &'static str,
    /// The verb, such as `watch`.
    pub verb: &'static str,
    /// The namespace; empty for all and for cluster-scoped resources.
    pub namespace: String,
    /// The name of the object; empty for all.
    pub name: String,
    /// The feature that needs it.
    pub purpose: &'static str,
}

impl Right {
    /// A right to use a verb on all objects in all namespaces.
    #[must_use]
    pub fn to(
        verb: &'static str,
        group: &'static str,
        resource: &str,
        purpose: &'static str,
    ) -> Self {
        Self {
            verb,
            group,
            resource: resource.to_owned(),
            purpose,
            ..Self::default()
        }
    }

    /// Limits the right to one namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self
        }
    }

    /// The resource with its group, as kubectl takes it.
    fn resource(&self) -> String {
        let part = if self.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", self.subresource)
        };
        let group = if self.group.is_empty() {
            String::new()
        } else {
            format!(".{}", self.group)
        };
        format!("{}{group}{part}", self.resource)
    }
}

/// The missing rights.
pub(super) async fn denied(client: &kube::Client, rights: &[Right]) -> kube::Result<Vec<Right>> {
    let reviews = &Api::<SelfSubjectAccessReview>::all(client.clone());
    let one = |right: Right| async move {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let attributes = ResourceAttributes {
            group: some(right.group),
            resource: some(&right.resource),
            subresource: some(right.subresource),
            verb: some(right.verb),
            namespace: some(&right.namespace),
            name: some(&right.name),
            ..ResourceAttributes::default()
        };

        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..Default::default()
        };
        let review = SelfSubjectAccessReview {
            spec,
            ..SelfSubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed);

        Ok::<_, kube::Error>((!is_allowed).then_some(right))
    };

    let all = stream::iter(rights.to_vec())
        .map(one)
        .buffer_unordered(MAX_CONCURRENT_REQUESTS);
    let mut denied: Vec<Right> = all
        .try_filter_map(|right| async move { Ok(right) })
        .try_collect()
        .await?;
    denied.sort_unstable();

    Ok(denied)
}

/// What missing rights have in common that are one finding.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeniedObjects<'a> {
    /// As kubectl takes it, with its subresource.
    resource: String,
    namespace: &'a str,
    name: &'a str,
    purpose: &'a str,
}

impl<'a> DeniedObjects<'a> {
    fn of(right: &'a Right) -> Self {
        Self {
            resource: right.resource(),
            namespace: &right.namespace,
            name: &right.name,
            purpose: right.purpose,
        }
    }

    /// The finding that a user may not use these verbs.
    fn finding(&self, user: &str, verbs: &[&str]) -> String {
        let mut what = format!("{user} may not {} {}", verbs.join(", "), self.resource);
        if !self.name.is_empty() {
            what += &format!(" named {}", self.name);
        }
        if !self.namespace.is_empty() {
            what += &format!(" in namespace {}", self.namespace);
        }
        format!("{what}: {}", self.purpose)
    }

    /// The command that shows whether a user may use a verb.
    fn command(&self, user: &str, verb: &str) -> String {
        let (resource, subresource) = self
            .resource
            .split_once('/')
            .unwrap_or((&self.resource, ""));

        let mut command = format!("kubectl auth can-i {verb} {resource}");
        if !self.name.is_empty() {
            command += &format!("/{}", self.name);
        }
        if !subresource.is_empty() {
            command += &format!(" --subresource={subresource}");
        }
        if self.namespace.is_empty() {
            command += " -A";
        } else {
            command += &format!(" -n {}", self.namespace);
        }
        format!("{command} --as={user}")
    }
}

/// Adds findings for missing rights, one for each resource and purpose.
pub(super) fn check(denied: &[Right], user: &str, health: &mut Health) {
    let mut verbs_by_objects: BTreeMap<DeniedObjects<'_>, Vec<&str>> = BTreeMap::new();
    for right in denied {
        let verbs = verbs_by_objects
            .entry(DeniedObjects::of(right))
            .or_default();
        verbs.push(right.verb);
    }

    let user = if user.is_empty() {
        "system:serviceaccount:istio-system:istiod"
    } else {
        user
    };

    for (objects, verbs) in verbs_by_objects.iter().take(MAX_FINDINGS_PER_CHECK) {
        let verb = verbs.first().expect("every entry has a verb");
        health.add(
            Check::Rights,
            Level::Wrong,
            objects.finding(user, verbs),
            &objects.command(user, verb),
        );
    }

    let next = format!("kubectl auth can-i --list --as={user}");
    health.more(
        Check::Rights,
        verbs_by_objects.len(),
        "resources with missing rights",
        &next,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_reported_by_resource_with_a_command() {
        let status = Right {
            subresource: "status",
            ..Right::to("patch", "networking.istio.io", "sidecars", "no conditions")
        };
        let denied = [
            Right::to("list", "", "pods", "they are not read"),
            Right::to("watch", "", "pods", "they are not read"),
            Right::to("create", "coordination.k8s.io", "leases", "nobody leads")
                .within("istio-system"),
            status,
        ];

        let mut health = Health::default();
        check(&denied, "", &mut health);
        let all: Vec<_> = health
            .findings
            .iter()
            .map(|finding| (&*finding.what, &*finding.next))
            .collect();
        let who = "system:serviceaccount:istio-system:istiod";

        let wanted = [
            (
                format!(
                    "{who} may not create leases.coordination.k8s.io in namespace istio-system: nobody leads"
                ),
                format!(
                    "kubectl auth can-i create leases.coordination.k8s.io -n istio-system --as={who}"
                ),
            ),
            (
                format!("{who} may not list, watch pods: they are not read"),
                format!("kubectl auth can-i list pods -A --as={who}"),
            ),
            (
                format!("{who} may not patch sidecars.networking.istio.io/status: no conditions"),
                format!(
                    "kubectl auth can-i patch sidecars.networking.istio.io --subresource=status -A --as={who}"
                ),
            ),
        ];

        assert_eq!(
            all,
            wanted
                .each_ref()
                .map(|(what, next)| (what.as_str(), next.as_str()))
        );

        assert!(health.is_wrong() && health.findings[0].docs == Check::Rights.docs());
        let mut well = Health::default();
        check(&[], who, &mut well);
        assert_eq!(well.findings, []);
    }
}
