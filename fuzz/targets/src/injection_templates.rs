//! Injection templates of an installation: any text is rejected, or rendered within the limits.
//!
//! An input is a template, followed by a line `=====` and the annotations of the pod as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch::api::mesh::MeshConfig;
use navarch::webhook::inject::{InjectRequest, Injector, InjectorInputs};
use serde_json::{Value, json};

/// Renders one template.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (template, annotations) = text.split_once("\n=====\n").unwrap_or((&text, "{}"));
    let annotations: Value = serde_json::from_str(annotations).unwrap_or_else(|_| json!({}));
    let config = json!({ "policy": "enabled", "defaultTemplates": ["sidecar", "own"], "templates": { "own": template } });
    let mesh = Arc::new(MeshConfig::istio_defaults());
    let inputs = InjectorInputs {
        config: config.to_string(),
        ..InjectorInputs::new(mesh)
    };
    let Ok(injector) = Injector::new(&inputs) else {
        return;
    };

    let pod = json!({
        "metadata": { "name": "web", "annotations": annotations, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "web", "image": "web", "ports": [{ "containerPort": 80 }] }] }
    });
    let request = InjectRequest {
        pod: &pod,
        namespace: "shop",
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };

    let _ = injector.inject(&request);
}
