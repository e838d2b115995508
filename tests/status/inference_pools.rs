//! Services that Navarch creates for InferencePools.

use navarch::status::{InferencePoolServices, Responsibility};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Deployed, until};

const POOL: &str = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools/llama";
const SERVICE: &str = "/api/v1/namespaces/default/services/llama-ip-fc5a1047";
const DEFINITION: &str = "inferencepools.inference.networking.k8s.io";

/// A CRD of InferencePool that accepts any content.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": DEFINITION, "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" } },
        "spec": {
            "group": "inference.networking.k8s.io",
            "scope": "Namespaced",
            "names": { "kind": "InferencePool", "plural": "inferencepools", "singular": "inferencepool" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// A pool whose pods serve on this port.
fn pool(port: i32) -> String {
    json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
        "metadata": { "name": "llama", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "llama" } }, "targetPorts": [{ "number": port }],
            "endpointPickerRef": { "name": "epp", "port": { "number": 9002 } },
        },
    })
    .to_string()
}

pub(crate) async fn services_are_created_and_restored(deployed: &Deployed) {
    let target = async || deployed.get(SERVICE).await["spec"]["ports"][0]["targetPort"].clone();
    let patch = async |path: &str, change: Value| {
        deployed
            .cluster
            .call("PATCH", path, "application/merge-patch+json", &change)
            .await
            .unwrap();
    };

    let stop = CancellationToken::new();

    // The CRD may be created later.
    let cluster = deployed.as_navarch().await;
    let responsibility = Responsibility::All;
    let task = tokio::spawn(
        InferencePoolServices {
            cluster,
            responsibility,
        }
        .run(stop.clone()),
    );

    deployed.cluster.apply(&definition().to_string()).unwrap();
    let wait = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        &format!("crd/{DEFINITION}"),
    ];

    deployed.cluster.kubectl(&wait, "").unwrap();
    deployed.cluster.apply(&pool(8000)).unwrap();
    let parent = json!({ "parentRef": { "group": "networking.istio.io", "kind": "Gateway", "name": "web" } });
    patch(
        &format!("{POOL}/status"),
        json!({ "status": { "parents": [parent] } }),
    )
    .await;

    until("a pool with a Gateway has a Service", async || {
        target().await == 8000
    })
    .await;
    let service = deployed.get(SERVICE).await;
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(
        service["metadata"]["labels"]["istio.io/inferencepool-extension-service"],
        "epp"
    );

    let uid = deployed.get(POOL).await["metadata"]["uid"].clone();
    assert_eq!(service["metadata"]["ownerReferences"][0]["uid"], uid);
    let manager = service["metadata"]["managedFields"][0]["manager"].clone();
    assert_eq!(manager, "istio.io/inference-pool-controller");

    deployed.cluster.apply(&pool(9000)).unwrap();
    until("it follows the pool", async || target().await == 9000).await;
    let ports = json!([{ "name": "http-0", "port": 54321, "targetPort": 1 }]);
    patch(SERVICE, json!({ "spec": { "ports": ports } })).await;
    until("a changed Service is restored", async || {
        target().await == 9000
    })
    .await;

    deployed
        .cluster
        .kubectl(&["delete", "service", "llama-ip-fc5a1047"], "")
        .unwrap();
    until("a deleted Service is created again", async || {
        target().await == 9000
    })
    .await;

    stop.cancel();
    task.await.unwrap();
    deployed
        .cluster
        .kubectl(&["delete", "crd", DEFINITION], "")
        .unwrap();
}
