//! CRDs of Istio's kinds without validation.
//!
//! For tests of reading from an API server: whatever it may have stored must be handled, including
//! objects that a strict schema would reject.

use serde_json::{Value, json};

/// Group, kind, plural and versions (the stored one last) of every kind.
const KINDS: [(&str, &str, &str, &[&str]); 14] = [
    (
        "networking.istio.io",
        "VirtualService",
        "virtualservices",
        &["v1alpha3", "v1beta1", "v1"],
    ),
    (
        "networking.istio.io",
        "DestinationRule",
        "destinationrules",
        &["v1alpha3", "v1beta1", "v1"],
    ),
    (
        "networking.istio.io",
        "Gateway",
        "gateways",
        &["v1alpha3", "v1beta1", "v1"],
    ),
    (
        "networking.istio.io",
        "ServiceEntry",
        "serviceentries",
        &["v1alpha3", "v1beta1", "v1"],
    ),
    (
        "networking.istio.io",
        "WorkloadEntry",
        "workloadentries",
        &["v1alpha3", "v1beta1", "v1"],
    ),
    (
        "networking.istio.io",
        "WorkloadGroup",
        "workloadgroups",
        &["v1alpha3", "v1beta1", "v1"],
    ),
    (
        "networking.istio.io",
        "Sidecar",
        "sidecars",
        &["v1alpha3", "v1beta1", "v1"],
    ),
    (
        "networking.istio.io",
        "EnvoyFilter",
        "envoyfilters",
        &["v1alpha3"],
    ),
    (
        "networking.istio.io",
        "ProxyConfig",
        "proxyconfigs",
        &["v1beta1"],
    ),
    (
        "security.istio.io",
        "PeerAuthentication",
        "peerauthentications",
        &["v1beta1", "v1"],
    ),
    (
        "security.istio.io",
        "RequestAuthentication",
        "requestauthentications",
        &["v1beta1", "v1"],
    ),
    (
        "security.istio.io",
        "AuthorizationPolicy",
        "authorizationpolicies",
        &["v1beta1", "v1"],
    ),
    (
        "telemetry.istio.io",
        "Telemetry",
        "telemetries",
        &["v1alpha1", "v1"],
    ),
    (
        "extensions.istio.io",
        "WasmPlugin",
        "wasmplugins",
        &["v1alpha1"],
    ),
];

/// All CRDs as one text of documents.
pub(super) fn permissive() -> String {
    let definitions = KINDS
        .iter()
        .map(|(group, kind, plural, versions)| definition(group, kind, plural, versions));
    definitions
        .map(|definition| format!("{definition}\n---\n"))
        .collect()
}

/// One CRD.
fn definition(group: &str, kind: &str, plural: &str, versions: &[&str]) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |(index, name): (usize, &&str)| {
        json!({
            "name": name,
            "served": true,
            "storage": index + 1 == versions.len(),
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object",
                // The spec may have any type, so that invalid ones can be stored.
                "properties": {"spec": {"x-kubernetes-preserve-unknown-fields": true}, "status": open},
            }},
        })
    };

    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

/// The CRD of a Gateway API kind without validation, with the scope `Cluster` or `Namespaced`.
#[must_use]
pub fn gateway_api_definition(kind: &str, plural: &str, scope: &str) -> Value {
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
        "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.gateway.networking.k8s.io"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
        },
        "spec": {
            "group": "gateway.networking.k8s.io", "scope": scope, "versions": [version],
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() },
        },
    })
}
