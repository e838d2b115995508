//! The configuration of Istio's own chart, whose templates replace the built-in ones.

use std::path::Path;

use navarch::api::yaml::{Schema, parse};
use navarch::webhook::inject::InjectorInputs;
use serde_json::{Map, Value, json};

use super::default;

/// Templates, and their files in the chart.
const TEMPLATES: [(&str, &str); 6] = [
    ("waypoint", "files/waypoint.yaml"),
    ("kube-gateway", "files/kube-gateway.yaml"),
    ("sidecar", "files/injection-template.yaml"),
    ("gateway", "files/gateway-injection-template.yaml"),
    ("grpc-agent", "files/grpc-agent.yaml"),
    ("grpc-simple", "files/grpc-simple.yaml"),
];

/// An environment variable of containers in the fetched chart's templates that Istio 1.32 does not
/// have.
const LATER: &str = "GOMAXPROCS";

/// A pod without the parts that a later Istio adds.
pub fn without_later_parts(mut pod: Value) -> Value {
    for list in ["/spec/containers", "/spec/initContainers"] {
        let Some(containers) = pod.pointer_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for env in containers
            .iter_mut()
            .filter_map(|container| container.get_mut("env")?.as_array_mut())
        {
            env.retain(|variable| variable["name"] != LATER);
        }
    }
    pod
}

/// The injector's inputs, with the overrides of one case.
pub fn inputs(chart: &Path, config: &Value) -> InjectorInputs {
    let read = |file: &str| std::fs::read_to_string(chart.join(file)).unwrap();
    let all = parse(&read("values.yaml"), Schema::V1_1).unwrap();
    let all = all.get("_internal_defaults_do_not_set").unwrap_or(&all);
    let part = |name: &str| all.get(name).cloned().unwrap_or_else(|| json!({}));
    let mut values: Map<_, _> = ["global", "sidecarInjectorWebhook", "revision", "gateways"]
        .map(|name| (name.to_owned(), part(name)))
        .into_iter()
        .collect();
    values.insert(
        "pilot".to_owned(),
        json!({ "cni": part("cni"), "env": part("env") }),
    );

    let mut values = Value::Object(values);
    if let Some(further) = config.get("values") {
        default::lay(&mut values, further);
    }

    let templates: Map<_, _> = TEMPLATES
        .iter()
        .map(|(name, file)| ((*name).to_owned(), json!(read(file))))
        .collect();
    let config_text =
        json!({ "policy": "enabled", "defaultTemplates": ["sidecar"], "templates": templates });
    InjectorInputs {
        values: values.to_string(),
        config: config_text.to_string(),
        ..default::inputs(config)
    }
}
