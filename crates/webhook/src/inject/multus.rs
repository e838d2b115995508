//! The networks that Multus attaches to a pod.

use serde_json::Value;

/// The annotation with the networks: comma-separated names, or a JSON list.
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// The namespace of the NetworkAttachmentDefinition of Istio's CNI plugin.
const NAMESPACE: &str = "default";

const NAME: &str = "istio-cni";

/// Adds the network of Istio's CNI plugin to a list of networks. Invalid JSON is not changed.
pub(super) fn with_network(networks: &str) -> String {
    with_named(networks, &format!("{NAMESPACE}/{NAME}"))
}

/// Adds a network to a list of networks; the network's name may have the form `namespace/name`.
pub(super) fn with_named(networks: &str, own: &str) -> String {
    let (namespace, name) = own.split_once('/').unwrap_or(("", own));
    if networks.is_empty() {
        return own.to_owned();
    }

    let Some(end) = networks.rfind(']') else {
        let there = networks.split(',').any(|network| network.trim() == own);
        return if there {
            networks.to_owned()
        } else {
            format!("{networks}, {own}")
        };
    };

    let Ok(listed) = serde_json::from_str::<Vec<Value>>(networks) else {
        return networks.to_owned();
    };

    let text = |network: &Value, field: &str| {
        network
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };

    let is_own =
        |network: &Value| text(network, "name") == name && text(network, "namespace") == namespace;
    let mut further = serde_json::json!({ "name": name }).to_string();

    if !namespace.is_empty() {
        further = format!(
            r#"{{"name": {}, "namespace": {}}}"#,
            Value::from(name),
            Value::from(namespace)
        );
    }

    match networks.split_at_checked(end) {
        Some((begin, rest)) if !listed.iter().any(is_own) => format!("{begin}, {further}{rest}"),
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
        assert_eq!(
            listed,
            r#"[{"name": "a"}, {"name": "istio-cni", "namespace": "default"}]"#
        );
        assert_eq!(with_network(&listed), listed);
        assert_eq!(with_network("[x]"), "[x]");
    }
}
