//! Random content for objects that modify the configuration of other objects: patches, policies,
//! telemetry, extensions, Ingress.

use navarch::api::object::Kind;
use serde_json::{Value, json};

use crate::universe::{HOSTS, Pick};

/// The API version and content of such an object.
pub(crate) fn content(
    kind: Kind,
    metadata: &mut Value,
    pick: &mut Pick,
) -> Option<(&'static str, Value)> {
    const SECURITY: &str = "security.istio.io/v1";
    let (version, mut spec) = match kind {
        Kind::EnvoyFilter => ("networking.istio.io/v1alpha3", envoy_filter(pick)),
        Kind::ProxyConfig => (
            "networking.istio.io/v1beta1",
            json!({ "concurrency": pick.below(3) }),
        ),
        Kind::WorkloadGroup => (
            "networking.istio.io/v1",
            json!({ "template": { "serviceAccount": pick.of(&["default", "robot"]) } }),
        ),
        Kind::AuthorizationPolicy => (SECURITY, authorization_policy(pick)),
        Kind::RequestAuthentication => (SECURITY, request_authentication(pick)),
        Kind::Telemetry => ("telemetry.istio.io/v1", telemetry(pick)),
        Kind::WasmPlugin => ("extensions.istio.io/v1alpha1", wasm_plugin(pick)),
        Kind::TrafficExtension => ("extensions.istio.io/v1alpha1", traffic_extension(pick)),
        Kind::Ingress => {
            metadata["annotations"] =
                json!({ "kubernetes.io/ingress.class": pick.of(&["istio", "other"]) });
            return Some(("networking.k8s.io/v1", json!({ "spec": ingress(pick) })));
        }
        Kind::IngressClass => {
            let controller = pick.of(&["istio.io/ingress-controller", "other.io/controller"]);
            return Some((
                "networking.k8s.io/v1",
                json!({ "spec": { "controller": controller } }),
            ));
        }
        _ => return None,
    };

    match kind {
        Kind::WorkloadGroup => {}
        Kind::EnvoyFilter if pick.yes() => {
            spec["workloadSelector"] =
                json!({ "labels": { "app": pick.of(&["s0", "s1", "gateway"]) } });
        }
        Kind::EnvoyFilter if pick.yes() => {
            spec["targetRefs"] = json!([{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway-0" }]);
        }
        Kind::EnvoyFilter => {}
        Kind::ProxyConfig if pick.yes() => {
            spec["selector"] = json!({ "matchLabels": { "app": "s0" } })
        }
        Kind::ProxyConfig => {}
        _ => match pick.below(3) {
            0 => {
                spec["selector"] = json!({ "matchLabels": { "app": pick.of(&["s0", "s1", "we"]) } })
            }
            1 => {
                let gateway = json!({ "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway-0" });
                let service =
                    json!({ "kind": "Service", "group": "", "name": pick.of(&["s0", "s1"]) });
                spec["targetRefs"] = json!([pick.of(&[&gateway, &service])]);
            }
            _ => {}
        },
    }

    Some((version, json!({ "spec": spec })))
}

fn envoy_filter(pick: &mut Pick) -> Value {
    let context = pick.of(&[
        "ANY",
        "SIDECAR_OUTBOUND",
        "SIDECAR_INBOUND",
        "GATEWAY",
        "WAYPOINT",
    ]);

    let filter = json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer", "max_request_bytes": 1000,
        },
    });

    let manager = json!({ "filterChain": { "filter": { "name": "envoy.filters.network.http_connection_manager" } } });
    let patch = match pick.below(8) {
        0 => json!({
            "applyTo": "CLUSTER", "match": { "context": context, "cluster": { "service": pick.of(&HOSTS[..5]) } },
            "patch": { "operation": "MERGE", "value": { "connect_timeout": "3s" } },
        }),
        1 => json!({
            "applyTo": "CLUSTER", "match": { "context": context },
            "patch": { "operation": "ADD", "value": { "name": "added", "connect_timeout": "1s", "type": "STATIC" } },
        }),
        2 => json!({
            "applyTo": "CLUSTER", "match": { "context": context, "cluster": { "portNumber": 9000 } },
            "patch": { "operation": "REMOVE" },
        }),
        3 => json!({
            "applyTo": "HTTP_FILTER", "match": { "context": context, "listener": manager },
            "patch": { "operation": pick.of(&["INSERT_FIRST", "INSERT_BEFORE"]), "value": filter },
        }),
        4 => json!({
            "applyTo": "HTTP_ROUTE", "match": { "context": context },
            "patch": { "operation": "MERGE", "value": { "route": { "timeout": "7s" } } },
        }),
        5 => json!({
            "applyTo": "VIRTUAL_HOST", "match": { "context": context },
            "patch": { "operation": "MERGE", "value": { "include_request_attempt_count": false } },
        }),
        6 => json!({
            "applyTo": "LISTENER", "match": { "context": context, "listener": { "portNumber": 9000 } },
            "patch": { "operation": pick.of(&["REMOVE", "MERGE"]), "value": { "per_connection_buffer_limit_bytes": 9 } },
        }),
        _ => json!({
            "applyTo": "EXTENSION_CONFIG", "match": { "context": context },
            "patch": { "operation": "ADD", "value": filter },
        }),
    };

    json!({ "configPatches": [patch], "priority": pick.below(3) })
}

fn authorization_policy(pick: &mut Pick) -> Value {
    let mut rule = json!({ "to": [{ "operation": { "paths": [pick.of(&["/x", "/y*"])] } }] });
    if pick.yes() {
        rule["from"] = json!([{ "source": { "namespaces": [pick.of(&["a", "b"])] } }]);
    }
    json!({ "action": pick.of(&["ALLOW", "DENY", "AUDIT"]), "rules": [rule] })
}

fn request_authentication(pick: &mut Pick) -> Value {
    json!({ "jwtRules": [{ "issuer": pick.of(&["i", "j"]), "jwks": "{\"keys\":[]}" }] })
}

fn telemetry(pick: &mut Pick) -> Value {
    match pick.below(3) {
        0 => json!({ "metrics": [{ "providers": [{ "name": "prometheus" }] }] }),
        1 => {
            json!({ "accessLogging": [{ "providers": [{ "name": "envoy" }], "disabled": pick.yes() }] })
        }
        _ => {
            json!({ "tracing": [{ "providers": [{ "name": "zip" }], "randomSamplingPercentage": 10 }] })
        }
    }
}

fn wasm_plugin(pick: &mut Pick) -> Value {
    json!({
        "url": "https://example.com/plugin.wasm", "sha256": "0".repeat(64), "pluginConfig": { "a": pick.below(3) },
        "phase": pick.of(&["AUTHN", "AUTHZ", "STATS"]),
    })
}

fn traffic_extension(pick: &mut Pick) -> Value {
    json!({ "phase": pick.of(&["AUTHN", "STATS"]), "lua": { "inlineCode": "function envoy_on_request(h) end" } })
}

fn ingress(pick: &mut Pick) -> Value {
    let backend =
        json!({ "service": { "name": pick.of(&["s0", "s1"]), "port": { "number": 80 } } });
    let path = json!({ "path": pick.of(&["/", "/x"]), "pathType": pick.of(&["Prefix", "Exact"]), "backend": backend });
    let mut spec = json!({ "rules": [{ "host": pick.of(&["ext.example.com", "in.example.com"]), "http": { "paths": [path] } }] });
    if pick.yes() {
        spec["ingressClassName"] = json!("ingressclass-0");
    }
    spec
}
