//! The manifests, and all objects that Navarch writes, in the order of a control plane's life.

use std::path::Path;

use navarch_testkit::helm::Helm;
use serde_json::{Value, json};

use crate::{
    Deployed, NAMESPACE, addresses, ambient, analysis, gateway_api, inference_pools, leaders,
    learned_scopes, quarantine, registration, rollouts, roots, unready, untaint, whole,
};

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
    let answer = deployed
        .cluster
        .call("POST", path, "application/json", &ask)
        .await
        .unwrap();
    answer["status"]["allowed"].as_bool().unwrap()
}

/// Values with which the chart renders all objects and most of their fields.
fn everything() -> Value {
    json!({
        "resources": {"limits": {"memory": "2Gi"}},
        "revisionTags": ["prod"],
        "taint": {"enabled": true},
        "memory": {"targetAverageUtilization": 80},
        "env": {"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API", "ENABLE_CLUSTER_TRUST_BUNDLE_API": true},
        "jwksResolverExtraRootCA": "a certificate",
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "gatewayClasses": {"istio": {"service": {"spec": {"type": "ClusterIP"}}}},
        "experimental": {"stableValidationPolicy": true},
        "sidecarInjectorWebhook": {"enableNamespacesByDefault": true, "templates": {"hello": "metadata: {}"}},
        "global": {
            "networkPolicy": {"enabled": true, "apiServers": "10.0.0.0/28"},
            "certSigners": ["signers.example.com/a"],
            "imagePullSecrets": ["key"],
            "priorityClassName": "system-cluster-critical",
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifests_apply_and_grant_every_write_of_navarch() {
    let deployed = Deployed::start().await;

    for (namespace, name, allowed) in [
        ("kube-system", "istio-ca-root-cert", true),
        ("kube-system", "istio-ca-crl", true),
        ("kube-system", "aws-auth", false),
        ("kube-public", "cluster-info", false),
    ] {
        assert_eq!(
            may_update(&deployed, namespace, name).await,
            allowed,
            "{namespace}/{name}"
        );
    }

    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/charts/navarch");
    let all = Helm::find()
        .unwrap()
        .template(&chart, "navarch", NAMESPACE, &everything())
        .unwrap();
    let dry_run = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
    let applied = deployed.cluster.kubectl(&dry_run, &all).unwrap();
    assert!(
        applied.contains("networkpolicy.networking.k8s.io/istiod created (server dry run)"),
        "{applied}"
    );

    for kind in ["Deployment", "DaemonSet"] {
        let values = json!({
            "kind": kind, "autoscaling": {"minReplicas": 2}, "podDisruptionBudget": {"minAvailable": 1},
            "networkGateway": "network-1", "global": {"networkPolicy": {"enabled": true}},
        });
        let gateway = chart.with_file_name("gateway");
        let gateway = Helm::find()
            .unwrap()
            .template(&gateway, "edge", NAMESPACE, &values)
            .unwrap();
        let applied = deployed.cluster.kubectl(&dry_run, &gateway).unwrap();

        assert!(
            applied.contains(&format!("{}.apps/edge created", kind.to_lowercase())),
            "{applied}"
        );
    }

    leaders::hand_over_and_are_preempted(&deployed).await;
    leaders::wait_for_an_istiod_that_leads(&deployed).await;
    untaint::follows_the_pods_of_istio_cni(&deployed).await;
    roots::are_published_to_every_namespace_and_restored(&deployed).await;
    addresses::are_allocated_once_and_released(&deployed).await;
    analysis::faults_are_written_and_removed(&deployed).await;
    quarantine::a_quarantine_is_reported_by_a_condition_and_an_event(&deployed).await;
    quarantine::replicas_share_quarantines_and_their_end(&deployed).await;
    learned_scopes::learned_scopes_are_stored_and_stay_deleted(&deployed).await;
    unready::an_unready_control_plane_writes_an_event_of_its_pod(&deployed).await;

    rollouts::replicas_agree_and_forget_no_abort(&deployed).await;
    rollouts::state_of_a_later_release_is_left_unchanged(&deployed).await;
    gateway_api::is_written_next_to_that_of_other_controllers_and_repaired(&deployed).await;
    inference_pools::services_are_created_and_restored(&deployed).await;
    ambient::conditions_coexist_with_others_and_are_removed(&deployed).await;
    registration::follows_proxies(&deployed).await;
    whole::replicas_write_in_turn_and_serve_the_same(&deployed).await;
    assert_eq!(deployed.denied(), Vec::<String>::new());
}
