//! The service name in traces and metrics (Envoy's `node.cluster`).

use crate::node::Node;
use navarch_api::mesh::{ProxyConfig, TracingServiceName};

/// The fallback service name.
const UNNAMED: &str = "istio-proxy";

/// The service name: from the proxy config, else from the app label, the workload or the namespace.
pub(super) fn service_cluster(node: &Node, config: &ProxyConfig) -> String {
    match (
        config.tracing_service_name,
        config.service_cluster.as_deref(),
    ) {
        (Some(TracingServiceName::CanonicalNameOnly), _) => named(canonical_name(node), node),
        (Some(TracingServiceName::CanonicalNameAndNamespace), _) => match node.text("NAMESPACE") {
            "" => named(canonical_name(node), node),
            namespace => format!("{}.{namespace}", canonical_name(node)),
        },
        (Some(TracingServiceName::AppLabelAndNamespace), _) | (None, None) => named(UNNAMED, node),
        (None, Some(name)) => named(name, node),
    }
}

/// The given name; an empty name falls back to the name of the pod's app or workload.
fn named(name: &str, node: &Node) -> String {
    let workload = node.text("WORKLOAD_NAME");
    let namespace = node.text("NAMESPACE");
    let app = first_label(
        node,
        [
            "app",
            "app.kubernetes.io/name",
            "service.istio.io/canonical-name",
        ],
    );
    match (name, app, workload, namespace) {
        ("" | UNNAMED, Some(app), _, _) => format!("{app}.{namespace}"),
        ("" | UNNAMED, None, "", "") => UNNAMED.to_owned(),
        ("" | UNNAMED, None, "", _) => format!("{UNNAMED}.{namespace}"),
        ("" | UNNAMED, None, _, _) => format!("{workload}.{namespace}"),
        (name, ..) => name.to_owned(),
    }
}

/// The canonical service of the pod.
fn canonical_name(node: &Node) -> &str {
    let workload = match node.text("WORKLOAD_NAME") {
        "" => UNNAMED,
        workload => workload,
    };
    first_label(
        node,
        [
            "service.istio.io/canonical-name",
            "app.kubernetes.io/name",
            "app",
        ],
    )
    .unwrap_or(workload)
}

/// The value of the first label that the pod has.
fn first_label<'a>(node: &'a Node, keys: [&str; 3]) -> Option<&'a str> {
    keys.iter()
        .find_map(|key| node.labels.get(*key))
        .map(String::as_str)
}
