//! Pods: made by people, by a controller, and by a gateway's owner.

use serde_json::{Value, json};

use crate::installed::Installed;
use crate::until;

/// A namespace whose pods are injected.
const SHOP: &str = "shop";

/// Makes the namespace.
pub(crate) fn open_shop(installed: &Installed) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SHOP, "labels": { "istio-injection": "enabled" } } });
    assert!(installed.apply(&namespace).well);
}

/// A pod.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": SHOP, "labels": { "app": name } },
        "spec": {
            "serviceAccountName": "default",
            "containers": [{ "name": "app", "image": "app", "ports": [{ "containerPort": 8080 }],
                "readinessProbe": { "httpGet": { "path": "/ready", "port": 8080 } } }],
        },
    })
}

/// The names of all containers of a pod.
fn containers(pod: &Value) -> Vec<String> {
    let of = |field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let all = [of("initContainers"), of("containers")].concat();
    all.iter().map(|container| container["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Creates pods and reads what became of them.
pub(crate) async fn are_injected(installed: &Installed) {
    let created = installed.apply(&pod("plain"));
    assert!(created.well, "{created:?}");
    let plain = installed.get(&format!("/api/v1/namespaces/{SHOP}/pods/plain")).await;
    let names = containers(&plain);
    assert!(names.contains(&"istio-proxy".to_owned()) && names.contains(&"app".to_owned()), "{plain:#}");
    assert!(plain["metadata"]["annotations"]["sidecar.istio.io/status"].is_string());
    // Under server-side dry run the result is accepted, and what is injected is not injected again.
    let tried = installed.try_out(&pod("tried"));
    assert!(tried.well, "{tried:?}");
    let mut again: Value = serde_json::from_str(&tried.text).unwrap();
    for field in ["creationTimestamp", "uid", "resourceVersion", "managedFields"] {
        again["metadata"].as_object_mut().unwrap().remove(field);
    }
    let once = containers(&again);
    let tried = installed.try_out(&again);
    assert!(tried.well, "{tried:?}");
    assert_eq!(containers(&serde_json::from_str(&tried.text).unwrap()), once);
    // Who refuses is let alone.
    let mut refusing = pod("refusing");
    refusing["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("false");
    assert!(installed.apply(&refusing).well);
    let refusing = installed.get(&format!("/api/v1/namespaces/{SHOP}/pods/refusing")).await;
    assert_eq!(containers(&refusing), ["app"]);

    through_a_controller(installed).await;
    gateway(installed);
}

/// A Deployment whose pods a controller makes.
async fn through_a_controller(installed: &Installed) {
    let template = pod("deployed");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "deployed", "namespace": SHOP },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "deployed" } },
            "template": { "metadata": { "labels": { "app": "deployed" } }, "spec": template["spec"] },
        },
    });
    assert!(installed.apply(&deployment).well);
    let path = format!("/api/v1/namespaces/{SHOP}/pods?labelSelector=app=deployed");
    until("a controller's pods are injected", async || {
        let pods = installed.get(&path).await["items"].as_array().cloned().unwrap_or_default();
        let is_injected = |pod: &Value| containers(pod).contains(&"istio-proxy".to_owned());
        pods.len() == 2 && pods.iter().all(is_injected)
    })
    .await;
}

/// A gateway: a pod whose only container is the proxy, its image to be filled in.
fn gateway(installed: &Installed) {
    let gateway = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "gateway", "namespace": SHOP, "labels": { "istio": "ingressgateway" },
            "annotations": { "inject.istio.io/templates": "gateway" },
        },
        "spec": { "serviceAccountName": "default", "containers": [{ "name": "istio-proxy", "image": "auto" }] },
    });
    let tried = installed.try_out(&gateway);
    assert!(tried.well, "{tried:?}");
    let pod: Value = serde_json::from_str(&tried.text).unwrap();
    assert_eq!(containers(&pod), ["istio-proxy"]);
    assert_ne!(pod["spec"]["containers"][0]["image"], "auto");
}
