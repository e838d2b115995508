//! The meshes, and the requests that tell their policies apart.

use serde_json::{Value, json};

use super::callers::Request;
use crate::world::object;

/// Identities of callers.
const CALLER: &str = "cluster.local/ns/callers/sa/caller";
const WALKER: &str = "cluster.local/ns/callers/sa/walker";
const INTRUDER: &str = "cluster.local/ns/callers/sa/intruder";

/// A mesh that moves, with the requests that tell its policies apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeshCase {
    pub(super) name: &'static str,
    /// The policies and routes of the namespace that moves.
    pub(super) objects: fn() -> Vec<Value>,
    /// Whether a caller is in ambient mode from the beginning. Such callers know no VirtualService
    /// without a waypoint, so that a plan with one would be refused.
    pub(super) has_ambient_caller: bool,
    /// Who sends what.
    pub(super) requests: &'static [Request],
    /// Whether the plan creates a waypoint.
    pub(super) needs_waypoint: bool,
}

/// All of them.
pub(super) const MESHES: [MeshCase; 3] = [
    MeshCase {
        name: "policies about identities",
        objects: about_identities,
        has_ambient_caller: true,
        requests: &[
            Request::new("caller", "GET", "/open"),
            Request::new("caller", "POST", "/other"),
            Request::new("walker", "GET", "/open"),
            Request::new("walker", "DELETE", "/other"),
            Request::new("intruder", "GET", "/open"),
            Request::new("intruder", "POST", "/other"),
        ],
        needs_waypoint: false,
    },
    MeshCase {
        name: "policies about requests",
        objects: about_requests,
        has_ambient_caller: true,
        requests: &[
            Request::new("caller", "GET", "/open"),
            Request::new("caller", "GET", "/open/inner"),
            Request::new("caller", "POST", "/open"),
            Request::new("caller", "GET", "/closed"),
            Request::new("walker", "GET", "/open"),
            Request::new("walker", "POST", "/open"),
            Request::new("walker", "GET", "/closed"),
            Request::new("intruder", "GET", "/open"),
            Request::new("intruder", "GET", "/closed"),
        ],
        needs_waypoint: true,
    },
    MeshCase {
        name: "DENY and a VirtualService",
        objects: denying,
        has_ambient_caller: false,
        requests: &[
            Request::new("caller", "GET", "/private"),
            Request::new("caller", "POST", "/private/inner"),
            Request::new("caller", "GET", "/gone"),
            Request::new("intruder", "GET", "/private"),
            Request::new("intruder", "POST", "/open"),
            Request::new("intruder", "GET", "/gone"),
        ],
        needs_waypoint: true,
    },
];

/// An AuthorizationPolicy of the namespace.
fn authorization(name: &str, spec: Value) -> Value {
    let api = "security.istio.io/v1";
    object(api, "AuthorizationPolicy", "shop", name, "spec", spec)
}

fn about_identities() -> Vec<Value> {
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [{"from": [{"source": {"principals": [CALLER, WALKER]}}]}],
    });
    vec![authorization("callers", spec)]
}

fn about_requests() -> Vec<Value> {
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [{
            "from": [{"source": {"principals": [CALLER, WALKER]}}],
            "to": [{"operation": {"methods": ["GET"], "paths": ["/open", "/open/*"]}}],
        }],
    });
    vec![authorization("reading", spec)]
}

/// Mutual TLS is required, a path is denied to one caller, writing there to all, and a route
/// responds itself.
fn denying() -> Vec<Value> {
    let strict = json!({"mtls": {"mode": "STRICT"}});
    let private = ["/private", "/private/*"];
    let deny = json!({
        "action": "DENY",
        "rules": [
            {
                "from": [{"source": {"principals": [INTRUDER]}}],
                "to": [{"operation": {"paths": private}}],
            },
            {"to": [{"operation": {"methods": ["POST"], "paths": private}}]},
        ],
    });
    let host = "web.shop.svc.cluster.local";
    let routes = json!({
        "hosts": [host],
        "http": [
            {"match": [{"uri": {"exact": "/gone"}}], "directResponse": {"status": 410}},
            {"route": [{"destination": {"host": host}}]},
        ],
    });

    let security = "security.istio.io/v1";
    let networking = "networking.istio.io/v1";
    vec![
        object(
            security,
            "PeerAuthentication",
            "istio-system",
            "default",
            "spec",
            strict,
        ),
        authorization("private", deny),
        object(networking, "VirtualService", "shop", "web", "spec", routes),
    ]
}
