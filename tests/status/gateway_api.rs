//! Status of the Gateway API's objects.

use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use navarch::status::{ObjectStatuses, Share, WantedStatus, WantedStatuses};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, quarantine, until};

/// Where the route is.
const PATH: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/r";

/// A definition of HTTPRoute that takes anything.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "httproutes.gateway.networking.k8s.io",
            "annotations": { "api-approved.kubernetes.io": "unapproved, a test" },
        },
        "spec": {
            "group": "gateway.networking.k8s.io",
            "scope": "Namespaced",
            "names": { "kind": "HTTPRoute", "listKind": "HTTPRouteList", "plural": "httproutes", "singular": "httproute" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// What the route should be told.
fn wanted(accepted: &str) -> WantedStatuses {
    let status = json!({ "parents": [{
        "parentRef": { "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web" },
        "controllerName": "istio.io/gateway-controller",
        "conditions": [{ "type": "Accepted", "status": accepted, "reason": "R", "message": "m", "observedGeneration": 1 }],
    }] });
    let object = ObjectRef { kind: Kind::HttpRoute, name: NamespacedName::new("default", "r") };
    WantedStatuses::unit(object, WantedStatus::from(status.to_string()))
}

/// The entries of the route's status, as `controller=accepted`.
async fn entries(deployed: &Deployed) -> Vec<String> {
    let route = deployed.get(PATH).await;
    let entries = route.pointer("/status/parents").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| format!("{}={}", text(&entry["controllerName"]), text(&entry["conditions"][0]["status"])))
        .collect()
}

pub(crate) async fn is_written_beside_that_of_others_and_mended(deployed: &Deployed) {
    deployed.cluster.apply(&definition().to_string()).unwrap();
    let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd/httproutes.gateway.networking.k8s.io"];
    deployed.cluster.kubectl(&wait, "").unwrap();
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": "r", "namespace": "default" }, "spec": {},
    });
    deployed.cluster.apply(&route.to_string()).unwrap();
    let theirs = json!({ "controllerName": "example.com/theirs", "parentRef": { "name": "theirs" },
        "conditions": [{ "type": "Accepted", "status": "Unknown" }] });
    let patch = async |status: Value| {
        let path = format!("{PATH}/status");
        deployed
            .cluster
            .call("PATCH", &path, "application/merge-patch+json", &json!({ "status": status }))
            .await
            .unwrap();
    };
    patch(json!({ "parents": [theirs] })).await;

    let (tell, told) = watch::channel(WantedStatuses::new());
    let stop = CancellationToken::new();
    let controllers = vec!["istio.io/gateway-controller".to_owned()];
    let writer =
        ObjectStatuses { cluster: deployed.as_navarch().await, wanted: told, controllers, share: Share::Whole };
    let task = tokio::spawn(writer.run(stop.clone()));
    tell.send_replace(wanted("False"));
    let first = ["example.com/theirs=Unknown", "istio.io/gateway-controller=False"];
    until("ours stands beside theirs", async || entries(deployed).await == first).await;
    tell.send_replace(wanted("True"));
    let second = ["example.com/theirs=Unknown", "istio.io/gateway-controller=True"];
    until("it follows", async || entries(deployed).await == second).await;
    let version = deployed.get(PATH).await["metadata"]["resourceVersion"].clone();
    tell.send_replace(wanted("True"));
    patch(json!({ "parents": [theirs] })).await;
    until("what others took away is there again", async || entries(deployed).await == second).await;
    let seen = deployed.get(PATH).await["metadata"]["resourceVersion"].clone();
    assert_ne!(version, seen);
    stop.cancel();
    task.await.unwrap();
    quarantine::a_route_is_told_once_it_has_a_parent(deployed).await;
    deployed.cluster.kubectl(&["delete", "crd", "httproutes.gateway.networking.k8s.io"], "").unwrap();
}
