//! What handles the traffic of pods, and the workloads that own them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::objects::{ObjectKind, ObjectName, Objects, POD, annotation, items, label, name, text};

/// The container of sidecars and gateways.
pub(crate) const PROXY_CONTAINER: &str = "istio-proxy";
/// The annotation that injection leaves on pods with a sidecar.
pub(crate) const SIDECAR_STATUS: &str = "sidecar.istio.io/status";
/// The annotation of pods that istio-cni has redirected to ztunnel.
pub(crate) const REDIRECTION: &str = "ambient.istio.io/redirection";
/// The label of pods of a Gateway.
pub(crate) const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// The label with the controller of such pods, and its value for waypoints.
const MANAGED: (&str, &str) = ("gateway.istio.io/managed", "istio.io-mesh-controller");
/// The annotation with the templates of injected containers, and that of proxyless gRPC.
const TEMPLATES: (&str, &str) = ("inject.istio.io/templates", "grpc");

/// What handles the traffic of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataPlane {
    /// An Envoy beside the application.
    Sidecar,
    /// The ztunnel of its node.
    Ambient,
    /// Nothing of the mesh.
    Outside,
    /// An Envoy without an application, with routes of Gateways.
    Gateway,
    /// An Envoy behind ztunnel, for requests to a namespace.
    Waypoint,
    /// The node proxy itself.
    Ztunnel,
}

/// The object that owns pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// Such as `Deployment`; `Pod` for a pod without an owner.
    pub kind: String,
    /// `metadata.namespace`, the same as that of its pods.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl DataPlane {
    /// That of a pod.
    #[must_use]
    pub fn of(pod: &Value) -> Self {
        if label(pod, MANAGED.0) == MANAGED.1 {
            return Self::Waypoint;
        }
        if label(pod, "app") == "ztunnel" {
            return Self::Ztunnel;
        }
        if !label(pod, GATEWAY_NAME).is_empty()
            || label(pod, "istio").ends_with("gateway")
            || proxies(pod).any(|container| texts_of_args(container).any(|arg| arg == "router"))
        {
            return Self::Gateway;
        }
        if !annotation(pod, SIDECAR_STATUS).is_empty() || proxies(pod).next().is_some() {
            return Self::Sidecar;
        }
        if annotation(pod, REDIRECTION) == "enabled" {
            return Self::Ambient;
        }
        Self::Outside
    }

    /// Whether pods with it are workloads of users, which can move.
    pub(crate) fn is_of_workload(self) -> bool {
        matches!(self, Self::Sidecar | Self::Ambient | Self::Outside)
    }
}

/// The containers of a proxy in a pod.
pub(crate) fn proxies(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, "/spec/containers")
        .chain(items(pod, "/spec/initContainers"))
        .filter(|container| text(container, "/name") == PROXY_CONTAINER)
}

fn texts_of_args(container: &Value) -> impl Iterator<Item = &str> {
    items(container, "/args").filter_map(Value::as_str)
}

/// Whether the application of a pod is configured by the mesh itself, without Envoy.
pub(crate) fn is_proxyless(pod: &Value) -> bool {
    annotation(pod, TEMPLATES.0).contains(TEMPLATES.1)
}

/// Whether a pod runs, or will.
pub(crate) fn is_alive(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
        && pod.pointer("/metadata/deletionTimestamp").is_none()
}

/// The owner of a pod. The Deployment of a ReplicaSet is known by the name of the ReplicaSet.
pub(crate) fn owner(pod: &Value) -> Owner {
    let namespace = super::objects::namespace(pod).to_owned();
    let owners = || items(pod, "/metadata/ownerReferences");
    let controller = owners()
        .find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
        .or_else(|| owners().next());
    let Some(controller) = controller else {
        return Owner {
            kind: "Pod".to_owned(),
            namespace,
            name: name(pod).to_owned(),
        };
    };

    let kind = text(controller, "/kind");
    let own = text(controller, "/name");
    let hash = label(pod, "pod-template-hash");
    let deployment = own
        .strip_suffix(hash)
        .and_then(|stem| stem.strip_suffix('-'))
        .filter(|_| kind == "ReplicaSet" && !hash.is_empty());
    match deployment {
        Some(deployment) => Owner {
            kind: "Deployment".to_owned(),
            namespace,
            name: deployment.to_owned(),
        },
        None => Owner {
            kind: kind.to_owned(),
            namespace,
            name: own.to_owned(),
        },
    }
}

impl Owner {
    /// The object whose pod template is edited to restart the pods; `None` if its kind has none
    /// that can be rolled out, or it was not read.
    pub(crate) fn template<'a>(&self, objects: &'a Objects) -> Option<(&'a ObjectName, &'a Value)> {
        let kind = ["Deployment", "StatefulSet", "DaemonSet"]
            .into_iter()
            .find(|kind| *kind == self.kind)?;
        objects.find(ObjectKind::new("apps", kind), &self.namespace, &self.name)
    }
}

/// The pods of a namespace that run, by owner.
pub(crate) fn by_owner<'a>(
    objects: &'a Objects,
    namespace: &'a str,
) -> BTreeMap<Owner, Vec<&'a ObjectName>> {
    let mut owners: BTreeMap<Owner, Vec<&ObjectName>> = BTreeMap::new();
    for (pod_name, pod) in objects.within(POD, namespace) {
        if is_alive(pod) {
            owners.entry(owner(pod)).or_default().push(pod_name);
        }
    }
    owners
}

/// The pods of a namespace that have sidecars.
pub fn sidecars_of<'a>(
    objects: &'a Objects,
    namespace: &'a str,
) -> impl Iterator<Item = &'a ObjectName> {
    objects
        .within(POD, namespace)
        .filter(|(_, pod)| is_alive(pod) && DataPlane::of(pod) == DataPlane::Sidecar)
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_data_plane_of_a_pod_is_what_it_has_now() {
        let sidecar =
            json!({ "spec": { "containers": [{ "name": "app" }, { "name": "istio-proxy" }] } });
        let native = json!({ "spec": { "initContainers": [{ "name": "istio-proxy" }] } });
        let ambient =
            json!({ "metadata": { "annotations": { "ambient.istio.io/redirection": "enabled" } } });
        let gateway = json!({ "spec": { "containers": [{ "name": "istio-proxy", "args": ["proxy", "router"] }] } });
        let waypoint = json!({ "metadata": { "labels": {
            "gateway.networking.k8s.io/gateway-name": "w", "gateway.istio.io/managed": "istio.io-mesh-controller",
        } }, "spec": { "containers": [{ "name": "istio-proxy" }] } });

        for (pod, expected) in [
            (sidecar, DataPlane::Sidecar),
            (native, DataPlane::Sidecar),
            (ambient, DataPlane::Ambient),
            (gateway, DataPlane::Gateway),
            (waypoint, DataPlane::Waypoint),
            (json!({}), DataPlane::Outside),
        ] {
            assert_eq!(DataPlane::of(&pod), expected, "{pod}");
        }
    }

    #[test]
    fn the_owner_of_a_replica_set_is_its_deployment() {
        let pod = |kind: &str, of: &str| {
            json!({ "metadata": {
                "name": "web-7d9-x", "namespace": "shop", "labels": { "pod-template-hash": "7d9" },
                "ownerReferences": [{ "kind": kind, "name": of, "controller": true }],
            } })
        };
        let shown = |pod: &Value| owner(pod).to_string();
        assert_eq!(shown(&pod("ReplicaSet", "web-7d9")), "Deployment shop/web");
        assert_eq!(shown(&pod("ReplicaSet", "own")), "ReplicaSet shop/own");
        assert_eq!(shown(&pod("StatefulSet", "db")), "StatefulSet shop/db");
        let alone = json!({ "metadata": { "name": "debug", "namespace": "shop" } });
        assert_eq!(shown(&alone), "Pod shop/debug");
    }
}
