//! The networks that Multus attaches to a pod.

use serde_json::{Value, json};

/// The annotation that lists them: names with commas, or a JSON list.
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// The namespace of the network of Istio's plugin.
const NAMESPACE: &str = "default";

/// Its name.
const NAME: &str = "istio-cni";

/// A list of networks with that of Istio's plugin. What is meant as JSON and is none stays as it is.
pub(super) fn with_network(networks: &str) -> String {
    let own = format!("{NAMESPACE}/{NAME}");
    if networks.is_empty() {
        return own;
    }
    let Some(end) = networks.rfind(']') else {
        let there = networks.split(',').any(|network| network.trim() == own);
        return if there { networks.to_owned() } else { format!("{networks}, {own}") };
    };
    let Ok(listed) = serde_json::from_str::<Vec<Value>>(networks) else { return networks.to_owned() };
    let is_own = |network: &Value| network["name"] == json!(NAME) && network["namespace"] == json!(NAMESPACE);
    match networks.split_at_checked(end) {
        Some((begin, rest)) if !listed.iter().any(is_own) => {
            format!(r#"{begin}, {{"name": "{NAME}", "namespace": "{NAMESPACE}"}}{rest}"#)
        }
        Some(_) | None => networks.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_added_once_in_either_form() {
        assert_eq!(with_network(""), "default/istio-cni");
        assert_eq!(with_network("a"), "a, default/istio-cni");
        assert_eq!(with_network("a, default/istio-cni"), "a, default/istio-cni");
        let listed = with_network(r#"[{"name": "a"}]"#);
        assert_eq!(listed, r#"[{"name": "a"}, {"name": "istio-cni", "namespace": "default"}]"#);
        assert_eq!(with_network(&listed), listed);
        assert_eq!(with_network("[x]"), "[x]");
    }
}
