//! Pods with any annotations and labels.
//!
//! An input is JSON: `annotations` and `labels` of the pod, and `values` of the installation. An
//! input that is not JSON has an annotation on each line, in the form `name=value`.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch::api::mesh::MeshConfig;
use navarch::webhook::inject::{InjectRequest, InjectionOutcome, Injector, InjectorInputs};
use serde_json::{Map, Value, json};

/// The fields that the proxy's container may have, whatever the annotations.
const FIELDS: [&str; 14] = [
    "name",
    "image",
    "args",
    "command",
    "env",
    "ports",
    "resources",
    "lifecycle",
    "restartPolicy",
    "imagePullPolicy",
    "readinessProbe",
    "startupProbe",
    "securityContext",
    "volumeMounts",
];

/// Injects one pod.
///
/// # Panics
/// If the injected pod breaks a rule that holds for all annotations.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let input: Value = serde_json::from_str(&text).unwrap_or_else(|_| lines(&text));
    let values = input
        .get("values")
        .map(Value::to_string)
        .unwrap_or_default();
    let mesh = Arc::new(MeshConfig::istio_defaults());
    let Ok(injector) = Injector::new(&InjectorInputs {
        values,
        ..InjectorInputs::new(mesh)
    }) else {
        return;
    };

    let part = |name: &str| input.get(name).cloned().unwrap_or_else(|| json!({}));
    let ports = json!([{ "containerPort": 80 }]);
    let pod = json!({
        "metadata": { "name": "web", "annotations": part("annotations"), "labels": part("labels") },
        "spec": { "containers": [{ "name": "web", "image": "web", "ports": ports }] }
    });
    let request = InjectRequest {
        pod: &pod,
        namespace: "shop",
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };

    let Ok((injection, injected)) = injector.inject_as(&request, None) else {
        return;
    };

    let Some(injected) = injected else {
        assert!(
            matches!(injection.outcome, InjectionOutcome::Skipped(_)),
            "a pod is injected or skipped"
        );
        return;
    };

    let overridden = pod
        .pointer("/metadata/annotations/proxy.istio.io~1overrides")
        .is_some();

    for container in ["/spec/containers", "/spec/initContainers"]
        .iter()
        .filter_map(|list| injected.pointer(list)?.as_array())
        .flatten()
    {
        let name = container
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let fields = container.as_object().into_iter().flat_map(Map::keys);
        let strange: Vec<_> = fields
            .filter(|field| !FIELDS.contains(&field.as_str()))
            .collect();
        assert!(
            overridden || strange.is_empty(),
            "{name} has the unexpected fields {strange:?}"
        );
    }
}

/// The annotations in an input that is not JSON.
fn lines(text: &str) -> Value {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let annotations: Map<_, _> = pairs
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    json!({ "annotations": annotations })
}
