//! The manifests, and all that is written, in the order of a control plane's life.

use std::path::Path;

use navarch_testkit::chart;
use serde_json::json;

use crate::{Deployed, NAMESPACE, addresses, analysis, leaders, registration, roots, whole};

/// Whether Navarch's service account may change a ConfigMap.
async fn may_update(deployed: &Deployed, namespace: &str, name: &str) -> bool {
    let ask = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{NAMESPACE}:istiod"),
            "resourceAttributes": {
                "verb": "update", "resource": "configmaps", "namespace": namespace, "name": name,
            },
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = deployed.cluster.call("POST", path, "application/json", &ask).await.unwrap();
    answer["status"]["allowed"].as_bool().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_applied_and_all_that_navarch_writes_it_may_write() {
    let deployed = Deployed::start().await;
    for (namespace, name, allowed) in [
        ("kube-system", "istio-ca-root-cert", true),
        ("kube-system", "istio-ca-crl", true),
        ("kube-system", "aws-auth", false),
        ("kube-public", "cluster-info", false),
    ] {
        assert_eq!(may_update(&deployed, namespace, name).await, allowed, "{namespace}/{name}");
    }
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/charts/navarch");
    let set = [
        ("networkPolicy.enabled", "true"),
        ("networkPolicy.apiServers", "10.0.0.0/28"),
        ("resources.memoryLimit", "2Gi"),
    ];
    let all = chart::render_with(&chart, NAMESPACE, &set).unwrap();
    let applied = deployed.cluster.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], &all);
    let applied = applied.unwrap();
    assert!(applied.contains("networkpolicy.networking.k8s.io/istiod created (server dry run)"), "{applied}");
    leaders::hand_over_and_are_preempted(&deployed).await;
    roots::are_in_every_namespace_and_stay(&deployed).await;
    addresses::are_given_once_and_taken_back(&deployed).await;
    analysis::is_told_and_taken_back(&deployed).await;
    registration::follows_proxies(&deployed).await;
    whole::replicas_write_in_turn_and_serve_the_same(&deployed).await;
    assert_eq!(deployed.refused(), Vec::<String>::new());
}
