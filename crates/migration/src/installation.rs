//! What the objects of a cluster say of its control plane.

use std::collections::{BTreeMap, BTreeSet};

use navarch_api::istiod::{self, Istiod};
use navarch_api::revision::{REVISION_LABEL, TAG_LABEL};

use super::objects::{ObjectKind, Objects, SERVICE, label};

const CONFIG_MAP: ObjectKind = ObjectKind::new("", "ConfigMap");
const INJECTION: ObjectKind = ObjectKind::new(
    "admissionregistration.k8s.io",
    "MutatingWebhookConfiguration",
);

/// The revision of a name, which may be that of a tag. If a webhook and a Service declare a tag, the
/// Service takes precedence, as in istiod. `namespace` is that of the control plane.
#[must_use]
pub fn revision<'a>(objects: &'a Objects, namespace: &'a str, name: &'a str) -> &'a str {
    let of_tag = declarations(objects, namespace).filter(|(tag, _)| *tag == name);
    of_tag.last().map_or(name, |(_, revision)| revision)
}

/// The tags of a revision. `namespace` is that of the control plane.
#[must_use]
pub fn tags(objects: &Objects, namespace: &str, revision: &str) -> BTreeSet<String> {
    declarations(objects, namespace)
        .filter(|(_, of)| *of == revision)
        .map(|(tag, _)| tag.to_owned())
        .collect()
}

/// The declared tags with their revisions, those of Services last.
fn declarations<'a>(
    objects: &'a Objects,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let webhooks = objects.of(INJECTION);
    let all = webhooks.chain(objects.within(SERVICE, namespace));
    all.map(|(_, object)| (label(object, TAG_LABEL), label(object, REVISION_LABEL)))
        .filter(|(tag, revision)| !tag.is_empty() && !revision.is_empty())
}

/// The environment variables of the control plane with this revision, or any, from its Deployment.
#[must_use]
pub fn variables(
    objects: &Objects,
    namespace: &str,
    revision: Option<&str>,
) -> BTreeMap<String, String> {
    objects
        .within(istiod::DEPLOYMENT, namespace)
        .filter_map(|(_, deployment)| Istiod::of(deployment))
        .find(|istiod| revision.is_none_or(|revision| istiod.revision() == revision))
        .and_then(Istiod::container)
        .map(istiod::variables)
        .unwrap_or_default()
}

/// The text of the mesh config of the control plane with this revision.
#[must_use]
pub fn mesh_config<'a>(
    objects: &'a Objects,
    namespace: &'a str,
    revision: Option<&str>,
) -> Option<&'a str> {
    let map = istiod::MESH_CONFIG_MAP;
    let of_revision = revision.map(|revision| istiod::named(map, revision));
    let names = of_revision.into_iter().chain([map.to_owned()]);
    names
        .filter_map(|name| objects.find(CONFIG_MAP, namespace, &name))
        .find_map(|(_, map)| map.pointer("/data/mesh")?.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_those_of_the_selected_control_plane() {
        let mut objects = Objects::default();
        for (revision, value) in [("default", "false"), ("canary", "true")] {
            objects.add(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": format!("istiod-{revision}"), "namespace": "istio-system" },
                "spec": { "template": {
                    "metadata": { "labels": { "app": "istiod", "istio.io/rev": revision } },
                    "spec": { "containers": [{ "name": "discovery", "env": [
                        { "name": "PILOT_ENABLE_AMBIENT", "value": value },
                        { "name": "POD_NAME", "valueFrom": {} },
                    ] }] },
                } },
            }));
        }
        for (name, text) in [("istio", "a: b"), ("istio-canary", "c: d")] {
            objects.add(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": name, "namespace": "istio-system" },
                "data": { "mesh": text },
            }));
        }

        let found = variables(&objects, "istio-system", Some("canary"));
        let expected = [("PILOT_ENABLE_AMBIENT".to_owned(), "true".to_owned())];
        assert_eq!(found, BTreeMap::from(expected));
        let text = |revision| mesh_config(&objects, "istio-system", revision);
        assert_eq!(text(Some("canary")), Some("c: d"));
        assert_eq!(text(Some("other")), Some("a: b"));
        assert_eq!(text(None), Some("a: b"));
        assert!(variables(&objects, "elsewhere", None).is_empty());
    }

    #[test]
    fn tags_are_those_of_webhooks_and_of_services_of_the_control_plane() {
        let object = |api: &str, kind: &str, namespace: &str, tag: &str, revision: &str| {
            json!({
                "apiVersion": api, "kind": kind,
                "metadata": {
                    "name": format!("istio-revision-tag-{tag}"), "namespace": namespace,
                    "labels": { "istio.io/tag": tag, "istio.io/rev": revision },
                },
            })
        };
        let webhook = |tag, revision| {
            let api = "admissionregistration.k8s.io/v1";
            object(api, "MutatingWebhookConfiguration", "", tag, revision)
        };
        let service = |namespace, tag| object("v1", "Service", namespace, tag, "canary");

        let mut objects = Objects::default();
        for one in [
            webhook("prod", "stable"),
            webhook("default", "stable"),
            service("istio-system", "prod"),
            service("elsewhere", "next"),
        ] {
            objects.add(one);
        }
        let found = |revision| tags(&objects, "istio-system", revision);
        assert_eq!(found("canary"), BTreeSet::from(["prod".to_owned()]));
        assert!(found("stable").contains("default"));

        for (name, expected) in [("prod", "canary"), ("default", "stable"), ("next", "next")] {
            assert_eq!(revision(&objects, "istio-system", name), expected);
        }
    }
}
