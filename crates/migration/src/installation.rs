//! What the objects of a cluster say of its control plane.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{ObjectKind, Objects, items, label, text};

/// The label of control planes.
const APP: (&str, &str) = ("app", "istiod");
/// The label of their revision.
pub(crate) const REVISION: &str = "istio.io/rev";
/// Their container.
const CONTAINER: &str = "discovery";
const CONFIG_MAP: ObjectKind = ObjectKind {
    group: "",
    kind: "ConfigMap",
};
const DEPLOYMENT: ObjectKind = ObjectKind {
    group: "apps",
    kind: "Deployment",
};

/// The environment variables of the control plane with this revision, or any, from its Deployment.
#[must_use]
pub fn variables(
    objects: &Objects,
    namespace: &str,
    revision: Option<&str>,
) -> BTreeMap<String, String> {
    let is_wanted = |deployment: &Value| {
        let pods = |key| text_of_map(deployment, "/spec/template/metadata/labels", key);
        let has = |key, value: &str| label(deployment, key) == value || pods(key) == value;
        has(APP.0, APP.1) && revision.is_none_or(|revision| has(REVISION, revision))
    };
    objects
        .within(DEPLOYMENT, namespace)
        .map(|(_, deployment)| deployment)
        .find(|deployment| is_wanted(deployment))
        .into_iter()
        .flat_map(|deployment| items(deployment, "/spec/template/spec/containers"))
        .filter(|container| text(container, "/name") == CONTAINER)
        .flat_map(|container| items(container, "/env"))
        .filter_map(|variable| {
            let value = variable.get("value")?.as_str()?;
            Some((text(variable, "/name").to_owned(), value.to_owned()))
        })
        .collect()
}

/// The text of the mesh config of the control plane with this revision.
#[must_use]
pub fn mesh_config<'a>(
    objects: &'a Objects,
    namespace: &'a str,
    revision: Option<&str>,
) -> Option<&'a str> {
    let of_revision = revision.map(|revision| format!("istio-{revision}"));
    let names = of_revision.into_iter().chain(["istio".to_owned()]);
    names
        .filter_map(|name| objects.find(CONFIG_MAP, namespace, &name))
        .find_map(|(_, map)| map.pointer("/data/mesh")?.as_str())
}

/// A text of a map at a JSON pointer; empty if there is none.
fn text_of_map<'a>(object: &'a Value, pointer: &str, key: &str) -> &'a str {
    let map = object.pointer(pointer);
    map.and_then(|map| map.get(key)?.as_str())
        .unwrap_or_default()
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
}
