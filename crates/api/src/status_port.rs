//! The port of the agent in a pod, on which it serves its status and the metrics of Envoy.

use serde_json::Value;

use crate::json_object::{annotation, items, text};

/// The annotation with the port of a pod's agent.
pub const ANNOTATION: &str = "status.sidecar.istio.io/port";
/// The port of agents without another one.
pub const DEFAULT: u16 = 15020;
/// The container of the agent.
const CONTAINER: &str = "istio-proxy";
/// The variable of the agent with its proxy config.
const PROXY_CONFIG: &str = "PROXY_CONFIG";

/// The status port of the agent in a pod, as the agent itself reads it: that of the annotation, which
/// disables it if it is no port, else that of the proxy config. 0 if it is disabled.
#[must_use]
pub fn of_pod(pod: &Value) -> u16 {
    let annotated = annotation(pod, ANNOTATION);
    if !annotated.is_empty() {
        return annotated.parse().unwrap_or(0);
    }

    let containers = items(pod, "/spec/containers").chain(items(pod, "/spec/initContainers"));
    let agents = containers.filter(|container| text(container, "/name") == CONTAINER);
    let variables = agents.flat_map(|agent| items(agent, "/env"));
    let configs = variables
        .filter(|variable| text(variable, "/name") == PROXY_CONFIG)
        .filter_map(|variable| serde_json::from_str::<Value>(text(variable, "/value")).ok());

    let ports = configs.filter_map(|config| config.get("statusPort")?.as_u64());
    let configured = ports.last().map(|port| u16::try_from(port).unwrap_or(0));
    configured.unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod with these annotations, whose agent has this proxy config.
    fn pod(annotations: Value, config: &str) -> Value {
        json!({
            "metadata": { "annotations": annotations },
            "spec": { "initContainers": [
                { "name": "other", "env": [{ "name": PROXY_CONFIG, "value": r#"{"statusPort":1}"# }] },
                { "name": CONTAINER, "env": [{ "name": PROXY_CONFIG, "value": config }] },
            ] },
        })
    }

    #[test]
    fn the_port_of_an_agent_is_that_of_the_annotation_or_of_the_proxy_config() {
        assert_eq!(of_pod(&json!({})), DEFAULT);
        assert_eq!(of_pod(&pod(json!({}), "{}")), DEFAULT);
        let config = r#"{"statusPort":15999}"#;
        assert_eq!(of_pod(&pod(json!({}), config)), 15999);
        let annotated = |port: &str| pod(json!({ ANNOTATION: port }), config);
        assert_eq!(of_pod(&annotated("16000")), 16000);

        for none in ["0", "none", "70000"] {
            assert_eq!(of_pod(&annotated(none)), 0);
        }
    }
}
