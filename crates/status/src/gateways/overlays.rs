//! Applies overlays from ConfigMaps to the objects of a Gateway.

use std::collections::BTreeMap;

use navarch_api::object::NamespacedName;
use navarch_api::yaml::{self, Schema};
use navarch_webhook::inject::apply_overlay;
use serde_json::{Map, Value};

use super::objects::ObjectsError;

/// The supported kinds, and the ConfigMap key of each kind's overlay.
const KINDS: [(&str, &str, &str); 5] = [
    ("apps/v1", "Deployment", "deployment"),
    ("v1", "Service", "service"),
    ("v1", "ServiceAccount", "serviceAccount"),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalPodAutoscaler",
    ),
    ("policy/v1", "PodDisruptionBudget", "podDisruptionBudget"),
];

/// Metadata fields that overlays may not change: they are the identity and the owner of the object.
const FIXED: [&str; 11] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
];

/// The data of a ConfigMap.
pub(super) type Data = BTreeMap<String, String>;

/// The overlays of a ConfigMap.
#[derive(Clone, Copy, Debug)]
pub struct Overlay<'a> {
    /// The ConfigMap of the overlay.
    pub map: &'a NamespacedName,
    /// Its data: the text of the overlay for each kind.
    pub data: &'a BTreeMap<String, String>,
}

/// The ConfigMap key of the overlay for a kind, such as `deployment` for `Deployment`.
pub(super) fn key_of(kind: &str) -> Option<&'static str> {
    KINDS
        .iter()
        .find(|known| known.1 == kind)
        .map(|(_, _, key)| *key)
}

/// Applies the overlays for an object's kind, in order. `None` for an object that is only created
/// if an overlay exists.
///
/// # Errors
/// If the kind is unsupported, or an overlay is invalid, has an unknown key, or changes the
/// identity or owner of the object.
pub(super) fn with_overlays(
    object: &Value,
    overlays: &[Overlay<'_>],
) -> Result<Option<Value>, ObjectsError> {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };

    let version = text("apiVersion");
    let kind = text("kind");
    let Some((_, _, key)) = KINDS
        .iter()
        .find(|known| (known.0, known.1) == (version.as_str(), kind.as_str()))
    else {
        return Err(ObjectsError::Kind { version, kind });
    };

    let mut laid = object.clone();
    let mut is_requested = !matches!(
        kind.as_str(),
        "HorizontalPodAutoscaler" | "PodDisruptionBudget"
    );

    for Overlay { map, data } in overlays {
        if let Some(unknown) = data
            .keys()
            .find(|key| KINDS.iter().all(|(_, _, known)| known != key))
        {
            return Err(ObjectsError::Key {
                map: (*map).clone(),
                key: unknown.clone(),
            });
        }
        let Some(text) = data.get(*key) else {
            continue;
        };

        let fault = |reason: String| ObjectsError::Overlay {
            map: (*map).clone(),
            key: (*key).to_owned(),
            reason,
        };
        let overlay =
            match yaml::parse(text, Schema::V1_1).map_err(|error| fault(error.to_string()))? {
                Value::Null => Value::Object(Map::new()),
                overlay @ Value::Object(_) => overlay,
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err(fault("it is not an object".to_owned()));
                }
            };

        apply_overlay(&kind, &mut laid, overlay).map_err(|error| fault(error.to_string()))?;
        is_requested = true;

        if changes_identity(object, &laid) {
            return Err(ObjectsError::Identity {
                map: (*map).clone(),
                key: (*key).to_owned(),
            });
        }
    }

    Ok(is_requested.then_some(laid))
}

/// Whether an object with overlays has another identity or owner than before.
fn changes_identity(object: &Value, laid: &Value) -> bool {
    let of = |object: &Value, field: &str| object.pointer(&format!("/metadata/{field}")).cloned();
    FIXED
        .iter()
        .any(|field| of(object, field) != of(laid, field))
        || of(laid, "managedFields").is_some()
        || ["apiVersion", "kind"]
            .iter()
            .any(|field| object.get(field) != laid.get(field))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Lays an overlay over a Service or a budget.
    fn apply_overlay(kind: &str, key: &str, overlay: &str) -> Result<Option<Value>, ObjectsError> {
        let version = if kind == "Service" { "v1" } else { "policy/v1" };
        let meta =
            json!({ "name": "web", "namespace": "shop", "ownerReferences": [{ "uid": "u" }] });
        let spec = json!({ "ports": [{ "port": 80, "name": "http" }] });
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": meta, "spec": spec });
        let map = NamespacedName::new("shop", "opts");
        let data = Data::from([(key.to_owned(), overlay.to_owned())]);
        let overlay = Overlay {
            map: &map,
            data: &data,
        };
        with_overlays(&object, &[overlay])
    }

    #[test]
    fn overlays_change_the_object_but_not_its_identity() {
        let ports = "spec: {ports: [{port: 81, name: more}, {port: 80, appProtocol: tcp}]}";
        let service = apply_overlay("Service", "service", ports).unwrap().unwrap();
        let expected = json!([{ "port": 81, "name": "more" }, { "port": 80, "name": "http", "appProtocol": "tcp" }]);
        assert_eq!(service["spec"]["ports"], expected);

        for stolen in [
            "metadata: {namespace: kube-system}",
            "metadata: {name: other}",
            "metadata: {ownerReferences: [{uid: mine}]}",
            "metadata: {ownerReferences: null}",
            "metadata: {finalizers: [a]}",
            "metadata: {managedFields: []}",
            "kind: Secret",
        ] {
            assert!(
                matches!(
                    apply_overlay("Service", "service", stolen),
                    Err(ObjectsError::Identity { .. })
                ),
                "{stolen}"
            );
        }

        assert!(matches!(
            apply_overlay("Service", "service", "[]"),
            Err(ObjectsError::Overlay { .. })
        ));
        assert!(matches!(
            apply_overlay("Service", "secret", "{}"),
            Err(ObjectsError::Key { .. })
        ));

        assert!(matches!(
            apply_overlay("Secret", "service", "{}"),
            Err(ObjectsError::Kind { .. })
        ));
    }

    #[test]
    fn a_rejection_names_the_config_map_the_overlay_and_the_reason() {
        for (key, overlay, expected) in [
            (
                "service",
                "[]",
                r#"ConfigMap shop/opts: overlay "service": it is not an object"#,
            ),
            (
                "service",
                "metadata: {name: other}",
                r#"ConfigMap shop/opts: overlay "service" may not change"#,
            ),
            (
                "secret",
                "{}",
                r#"ConfigMap shop/opts: unknown overlay "secret"; use deployment"#,
            ),
        ] {
            let error = apply_overlay("Service", key, overlay).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(error.is_rejected_overlay(), "{error}");
        }

        let keyless = "spec: {ports: [{name: more}]}";
        let error = apply_overlay("Service", "service", keyless).unwrap_err();
        assert!(error.is_rejected_overlay(), "{error}");

        let error = apply_overlay("Secret", "service", "{}").unwrap_err();
        assert!(!error.is_rejected_overlay(), "{error}");
    }

    #[test]
    fn keys_are_those_of_the_kinds() {
        assert_eq!(key_of("ServiceAccount"), Some("serviceAccount"));
        assert_eq!(key_of("Secret"), None);
    }

    #[test]
    fn a_pod_disruption_budget_exists_only_with_an_overlay() {
        assert_eq!(
            apply_overlay("PodDisruptionBudget", "service", "{}").unwrap(),
            None
        );
        assert!(
            apply_overlay("PodDisruptionBudget", "podDisruptionBudget", "")
                .unwrap()
                .is_some()
        );
    }
}
