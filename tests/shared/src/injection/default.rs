//! The configuration with which istiod's responses were recorded.

use std::sync::Arc;

use navarch::api::mesh::MeshConfig;
use navarch::webhook::inject::InjectorInputs;
use serde_json::{Map, Value, json};

/// Its mesh config.
const MESH: &str = "
defaultConfig: {discoveryAddress: 'istiod.istio-system.svc:15012'}
defaultProviders: {metrics: [prometheus]}
enablePrometheusMerge: true
rootNamespace: istio-system
trustDomain: cluster.local
";

/// The injector's inputs, with the overrides of one case.
pub fn inputs(config: &Value) -> InjectorInputs {
    let mesh = MeshConfig::istio_defaults().apply(MESH).unwrap().value;
    let further = json!({ "defaultConfig": config.get("mesh_default_config").cloned().unwrap_or_else(|| json!({})) });
    let mesh = mesh.apply(&further.to_string()).unwrap().value;
    let resources = json!({ "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "cpu": "2000m", "memory": "1024Mi" } });
    let proxy = json!({ "resources": resources });
    let mut values = json!({ "global": { "hub": "registry.istio.io/testing", "tag": "latest", "proxy": proxy } });
    if let Some(further) = config.get("values") {
        lay(&mut values, further);
    }
    InjectorInputs {
        values: values.to_string(),
        config: "policy: enabled\ndefaultTemplates: [sidecar]\n".to_owned(),
        ..InjectorInputs::new(Arc::new(mesh))
    }
}

/// Overrides values, recursively in maps.
pub fn lay(below: &mut Value, over: &Value) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            for (key, value) in over {
                lay(
                    below
                        .entry(key)
                        .or_insert_with(|| Value::Object(Map::new())),
                    value,
                );
            }
        }
        (below, over) => *below = over.clone(),
    }
}

/// The pod after a patch.
pub fn patched(pod: &Value, patch: &Value) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &patch).unwrap();
    pod
}
