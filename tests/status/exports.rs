//! ServiceExports that Navarch creates, in a configured API group.

use std::path::Path;

use navarch_testkit::helm::Helm;
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use crate::{Deployed, NAMESPACE, until};

/// The API group in this test.
const GROUP: &str = "mcs.example.com";

/// Grants the control plane the rights that the chart has for this group.
fn grant(deployed: &Deployed) {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/charts/navarch");
    let values = json!({ "env": { "MCS_API_GROUP": GROUP } });
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

/// The CRD of ServiceExports.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("serviceexports.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "kind": "ServiceExport", "plural": "serviceexports", "singular": "serviceexport" },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

#[tokio::test]
async fn exports_are_made_for_services() {
    let deployed = &Deployed::start().await;
    grant(deployed);

    for name in ["exports", "unselected"] {
        let labels = if name == "exports" {
            json!({ "exports": "yes" })
        } else {
            json!({})
        };
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
        deployed.cluster.apply(&namespace.to_string()).unwrap();
    }

    let service = |namespace: &str, name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": namespace, "name": name },
            "spec": { "ports": [{ "port": 80 }] },
        })
    };

    for (namespace, name) in [
        ("exports", "a"),
        ("exports", "private"),
        ("unselected", "c"),
    ] {
        deployed
            .cluster
            .apply(&service(namespace, name).to_string())
            .unwrap();
    }

    let folder = tempfile::tempdir().unwrap();
    let mesh = folder.path().join("mesh.yaml");
    let config = json!({
        "discoverySelectors": [{ "matchLabels": { "exports": "yes" } }],
        "serviceSettings": [{ "settings": { "clusterLocal": true }, "hosts": ["private.exports.svc.cluster.local"] }],
    });
    std::fs::write(&mesh, config.to_string()).unwrap();
    let kubeconfig = deployed
        .cluster
        .kubeconfig_of(NAMESPACE, "istiod")
        .await
        .unwrap();

    let flag = format!("--mesh-config={}", mesh.display());
    let environment = [
        ("POD_NAME", "exporter"),
        ("POD_NAMESPACE", NAMESPACE),
        ("ENABLE_MCS_AUTO_EXPORT", "true"),
        ("ENABLE_MCS_SERVICE_DISCOVERY", "true"),
        ("MCS_API_GROUP", GROUP),
        ("MCS_API_VERSION", "v1beta1"),
    ];

    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let navarch = Navarch::start_on_kubernetes(program, &kubeconfig, &[&flag], &environment)
        .await
        .unwrap();

    // The CRD may be created later.
    deployed.cluster.apply(&definition().to_string()).unwrap();
    let path = |namespace: &str, name: &str| {
        format!("/apis/{GROUP}/v1beta1/namespaces/{namespace}/serviceexports/{name}")
    };
    let export = async |namespace: &str, name: &str| deployed.get(&path(namespace, name)).await;
    until("the Service is exported", async || {
        !export("exports", "a").await.is_null()
    })
    .await;
    let made = export("exports", "a").await;
    let owner = &made["metadata"]["ownerReferences"][0];
    let uid =
        deployed.get("/api/v1/namespaces/exports/services/a").await["metadata"]["uid"].clone();
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("Service"), &json!("a"), &uid)
    );

    deployed
        .cluster
        .apply(&service("exports", "b").to_string())
        .unwrap();
    until("a later Service is exported, too", async || {
        !export("exports", "b").await.is_null()
    })
    .await;

    for (namespace, name) in [("exports", "private"), ("unselected", "c")] {
        assert_eq!(
            export(namespace, name).await,
            Value::Null,
            "{namespace}/{name} stays"
        );
    }

    assert!(navarch.stop().await.unwrap(), "navarch exits on SIGTERM");
    let requests = deployed.requests("serviceexports");
    assert!(
        requests.iter().any(|call| call.starts_with("\"create\"")),
        "{requests:?}"
    );
}
