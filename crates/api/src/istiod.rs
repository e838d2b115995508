//! A control plane in a cluster as its objects describe it, as they were written: istiod, or Navarch
//! in its place. Names and labels are those of Istio's chart.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::json_object::{ObjectKind, entry, items, label, namespace, text};
use crate::revision::REVISION_LABEL;

/// The label of control planes, with its value.
pub const APP: (&str, &str) = ("app", "istiod");
/// The revision of a control plane without a name.
pub const DEFAULT_REVISION: &str = "default";
/// The ConfigMap with the mesh config of the default revision.
pub const MESH_CONFIG_MAP: &str = "istio";
/// The kind of object that describes a control plane.
pub const DEPLOYMENT: ObjectKind = ObjectKind::new("apps", "Deployment");

/// The container of the control plane in its pods.
const CONTAINER: &str = "discovery";

/// A control plane, by its Deployment.
#[derive(Clone, Copy, Debug)]
pub struct Istiod<'a> {
    deployment: &'a Value,
}

impl<'a> Istiod<'a> {
    /// The control plane of an object; `None` if it is not the Deployment of one. Charts label the
    /// Deployment or its pods.
    #[must_use]
    pub fn of(object: &'a Value) -> Option<Self> {
        let istiod = Self { deployment: object };
        let is_one = DEPLOYMENT.is_of(object) && istiod.label(APP.0) == APP.1;
        is_one.then_some(istiod)
    }

    /// The Deployment.
    #[must_use]
    pub fn deployment(self) -> &'a Value {
        self.deployment
    }

    /// The namespace that it runs in, which its ConfigMaps and Secrets are in as well.
    #[must_use]
    pub fn namespace(self) -> &'a str {
        namespace(self.deployment)
    }

    /// Its revision; [`DEFAULT_REVISION`] for the one without a name.
    #[must_use]
    pub fn revision(self) -> &'a str {
        match self.label(REVISION_LABEL) {
            "" => DEFAULT_REVISION,
            revision => revision,
        }
    }

    /// The container of the control plane in its pods.
    #[must_use]
    pub fn container(self) -> Option<&'a Value> {
        container(self.deployment.pointer("/spec/template/spec")?)
    }

    /// The name of one of its objects, such as a ConfigMap: `istio`, or `istio-canary`.
    #[must_use]
    pub fn named(self, name: &str) -> String {
        named(name, self.revision())
    }

    /// A label of the Deployment, or of its pods.
    fn label(self, key: &str) -> &'a str {
        match label(self.deployment, key) {
            "" => entry(self.deployment, "/spec/template/metadata/labels", key),
            own => own,
        }
    }
}

/// The container of the control plane in the `spec` of a pod: the one named `discovery`, or the
/// first.
#[must_use]
pub fn container(pod: &Value) -> Option<&Value> {
    let named = items(pod, "/containers").find(|container| text(container, "/name") == CONTAINER);
    named.or_else(|| items(pod, "/containers").next())
}

/// The environment variables of a container that are written there; those with a value from
/// elsewhere, such as a Secret, are left out.
#[must_use]
pub fn variables(container: &Value) -> BTreeMap<String, String> {
    items(container, "/env")
        .filter(|variable| variable.get("valueFrom").is_none())
        .map(|variable| {
            let [name, value] = ["/name", "/value"].map(|part| text(variable, part));
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// The name of an object of a revision, such as a ConfigMap: `istio`, or `istio-canary`. The revision
/// is empty or [`DEFAULT_REVISION`] for the one without a name.
#[must_use]
pub fn named(name: &str, revision: &str) -> String {
    match revision {
        "" | DEFAULT_REVISION => name.to_owned(),
        revision => format!("{name}-{revision}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_control_plane_is_known_by_the_labels_of_its_deployment_or_of_its_pods() {
        let deployment = |own: Value, of_pods: Value| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": "d", "namespace": "istio-system", "labels": own },
                "spec": { "template": { "metadata": { "labels": of_pods } } },
            })
        };
        let canary = json!({ "app": "istiod", "istio.io/rev": "canary" });

        for (own, of_pods, revision) in [
            (canary.clone(), json!({}), Some("canary")),
            (json!({}), canary, Some("canary")),
            (json!({ "app": "istiod" }), json!({}), Some("default")),
            (json!({ "app": "web" }), json!({}), None),
        ] {
            let object = deployment(own, of_pods);
            let found = Istiod::of(&object).map(Istiod::revision);
            assert_eq!(found, revision, "{object}");
        }

        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "labels": { "app": "istiod" } },
        });
        assert!(Istiod::of(&service).is_none());
    }

    #[test]
    fn variables_are_those_of_its_container_that_are_written_there() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "labels": { "app": "istiod" } },
            "spec": { "template": { "spec": { "containers": [
                { "name": "other", "env": [{ "name": "OTHER", "value": "1" }] },
                { "name": "discovery", "env": [
                    { "name": "PILOT_ENABLE_AMBIENT", "value": "true" },
                    { "name": "EMPTY" },
                    { "name": "POD_NAME", "valueFrom": {} },
                ] },
            ] } } },
        });
        let expected = [("PILOT_ENABLE_AMBIENT", "true"), ("EMPTY", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = Istiod::of(&object)
            .and_then(Istiod::container)
            .map(variables);
        assert_eq!(found, Some(BTreeMap::from(expected)));
    }

    #[test]
    fn objects_have_the_revision_in_their_names() {
        assert_eq!(named("istio", ""), "istio");
        assert_eq!(named("istio", "default"), "istio");
        assert_eq!(named("istio", "canary"), "istio-canary");
    }
}
