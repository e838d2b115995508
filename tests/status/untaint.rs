//! Nodes lose a taint once istio-cni is ready on them.

use std::path::Path;

use navarch::status::NodeUntaint;
use navarch_testkit::helm::Helm;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Deployed, NAMESPACE, until};

const TAINT: &str = "cni.istio.io/not-ready";

/// Grants the control plane the rights that the chart has with `taint.enabled`.
fn grant(deployed: &Deployed) {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/charts/navarch");
    let values = json!({ "taint": { "enabled": true } });
    let all = Helm::find()
        .unwrap()
        .template(&chart, "navarch", NAMESPACE, &values)
        .unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&all).unwrap();
    for role in documents
        .iter()
        .filter(|object| object["kind"] == "ClusterRole")
    {
        deployed.cluster.apply(&role.to_string()).unwrap();
    }
}

pub(crate) async fn follows_the_pods_of_istio_cni(deployed: &Deployed) {
    grant(deployed);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker" },
        "spec": { "taints": [
            { "key": TAINT, "effect": "NoSchedule" },
            { "key": "dedicated", "value": "mesh", "effect": "NoSchedule" },
        ] },
    });

    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "istio-cni-node-1", "namespace": "kube-system", "labels": { "k8s-app": "istio-cni-node" } },
        "spec": { "nodeName": "worker", "containers": [{ "name": "install-cni", "image": "none" }] },
    });
    for object in [node, pod] {
        deployed.cluster.apply(&object.to_string()).unwrap();
    }

    let controller = NodeUntaint {
        cluster: deployed.as_navarch().await,
        namespace: "kube-system".to_owned(),
        taint: TAINT.to_owned(),
    };
    let stop = CancellationToken::new();
    let task = tokio::spawn(controller.run(stop.clone()));
    let keys = async || {
        let node = deployed.get("/api/v1/nodes/worker").await;
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        taints
            .iter()
            .filter_map(|taint| taint["key"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };

    assert!(keys().await.contains(&TAINT.to_owned()));
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let path = "/api/v1/namespaces/kube-system/pods/istio-cni-node-1/status";
    deployed
        .cluster
        .call("PATCH", path, "application/merge-patch+json", &status)
        .await
        .unwrap();

    until("the taint is removed", async || {
        !keys().await.contains(&TAINT.to_owned())
    })
    .await;
    assert!(
        keys().await.contains(&"dedicated".to_owned()),
        "others stay"
    );

    stop.cancel();
    task.await.unwrap();
}
