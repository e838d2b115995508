//! The objects of a cluster that are analyzed: those that istioctl reads.

use navarch_api::object::LOCK_RECORD;
use serde_json::Value;

use crate::kind::Kind;
use crate::read::IGNORED_NAMESPACES;

/// The label of the revision that an object is meant for.
const REVISION: &str = "istio.io/rev";
/// How the names of ConfigMaps begin that say something of Istio.
const ISTIO: &str = "istio";

/// The kinds that are read of the cluster that configures the mesh.
pub fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL
        .iter()
        .copied()
        .filter(|kind| *kind != Kind::MeshNetworks)
}

/// Whether objects of a kind in remote clusters are analyzed.
#[must_use]
pub fn is_read_remotely(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::MeshNetworks
            | Kind::Deployment
            | Kind::ConfigMap
            | Kind::MutatingWebhookConfiguration
            | Kind::ValidatingWebhookConfiguration
    )
}

/// The field selector for listing a kind: excludes large irrelevant objects, and Kubernetes' own
/// namespaces.
#[must_use]
pub fn field_selector(kind: Kind) -> Option<String> {
    let outside = |field: &str| {
        Some(
            IGNORED_NAMESPACES
                .map(|name| format!("{field}!={name}"))
                .join(","),
        )
    };
    if kind == Kind::Secret {
        Some("type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token".to_owned())
    } else if kind == Kind::Namespace {
        outside("metadata.name")
    } else if matches!(kind, Kind::Service | Kind::Pod) {
        outside("metadata.namespace")
    } else {
        None
    }
}

/// The only namespace in which a kind is listed, if the control plane is in `system`.
#[must_use]
pub fn only_namespace(kind: Kind, system: &str) -> Option<&str> {
    (kind == Kind::ConfigMap).then_some(system)
}

/// Whether an object is analyzed; `is_ours` decides about its revision or tag.
pub fn is_analyzed(kind: Kind, object: &Value, is_ours: impl FnOnce(&str) -> bool) -> bool {
    let text = |path: &[&str]| {
        path.iter()
            .try_fold(object, |value, field| value.get(field))
            .and_then(Value::as_str)
    };
    if kind == Kind::ConfigMap {
        let is_lock = text(&["metadata", "annotations", LOCK_RECORD]).is_some();
        if is_lock || !text(&["metadata", "name"]).is_some_and(|name| name.starts_with(ISTIO)) {
            return false;
        }
    }
    // Gateways of the Gateway API are chosen by their class.
    let is_of_all = kind.is_of_runtime() || kind == Kind::KubernetesGateway;
    is_of_all || text(&["metadata", "labels", REVISION]).is_none_or(is_ours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_other_revisions_and_locks_are_left_out() {
        let object = |name: &str, labels: Value, annotations: Value| json!({ "metadata": { "name": name, "labels": labels, "annotations": annotations } });
        let canary = object("istio", json!({ REVISION: "canary" }), json!({}));

        for (kind, revision, wanted) in [
            (Kind::VirtualService, "canary", true),
            (Kind::VirtualService, "default", false),
            (Kind::Deployment, "default", false),
            (Kind::Pod, "default", true),
            (Kind::KubernetesGateway, "default", true),
        ] {
            assert_eq!(
                is_analyzed(kind, &canary, |of| of == revision),
                wanted,
                "{kind:?} {revision}"
            );
        }

        let plain = |name: &str| object(name, json!({}), json!({}));
        assert!(is_analyzed(
            Kind::ConfigMap,
            &plain("istio-sidecar-injector"),
            |_| true
        ));

        assert!(!is_analyzed(
            Kind::ConfigMap,
            &plain("kube-root-ca.crt"),
            |_| true
        ));

        assert!(!is_analyzed(
            Kind::ConfigMap,
            &object("istio-leader", json!({}), json!({ LOCK_RECORD: "{}" })),
            |_| true
        ));
    }
}
