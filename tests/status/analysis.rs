//! Validation messages in the status of objects.

use std::time::Duration;

use navarch::analysis::Mesh;
use navarch::status::{Analysis, NamespaceScope};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, NAMESPACE, until};

/// Writes a VirtualService of a revision.
fn put(deployed: &Deployed, name: &str, routes: &Value, revision: &str) {
    let service = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": { "name": name, "namespace": "default", "labels": { "istio.io/rev": revision } },
        "spec": { "hosts": [format!("{name}.com")], "http": routes },
    });
    deployed.cluster.apply(&service.to_string()).unwrap();
}

/// A VirtualService as the API server stores it.
async fn get(deployed: &Deployed, name: &str) -> Value {
    let path = format!("/apis/networking.istio.io/v1/namespaces/default/virtualservices/{name}");
    deployed.get(&path).await
}

pub(crate) async fn faults_are_written_and_removed(deployed: &Deployed) {
    let good = json!([{ "route": [{ "destination": { "host": "kubernetes.default.svc.cluster.local" } }] }]);
    put(deployed, "broken", &json!([{}]), "default");
    put(deployed, "good", &good, "default");
    put(deployed, "other", &json!([{}]), "canary");
    let cluster = deployed.as_navarch().await;
    let (_scopes, scope) = watch::channel(NamespaceScope::default());
    let (_meshes, mesh) = watch::channel(Mesh::default());
    let analysis = Analysis {
        cluster,
        interval: Duration::from_millis(100),
        revision: "default".to_owned(),
        namespace: NAMESPACE.to_owned(),
        scope,
        mesh,
    };

    let stop = CancellationToken::new();
    let task = tokio::spawn(analysis.run(stop.clone()));
    let messages = async || get(deployed, "broken").await["status"]["validationMessages"].clone();
    until("the fault is in the status", async || {
        messages().await[0]["type"]["code"] == "IST0106"
    })
    .await;
    let status = get(deployed, "broken").await["status"].clone();
    assert_eq!(status["observedGeneration"], "1");

    assert_eq!(status["validationMessages"][0]["level"], "ERROR");

    // A condition of another controller stays, and without findings the status is not written
    // again.
    let condition = json!({ "status": { "conditions": [{ "type": "Mine", "status": "True" }] } });
    let path = "/apis/networking.istio.io/v1/namespaces/default/virtualservices/broken/status";
    deployed
        .cluster
        .call("PATCH", path, "application/merge-patch+json", &condition)
        .await
        .unwrap();

    put(deployed, "broken", &good, "default");
    until("a corrected object has no messages", async || {
        messages().await == json!([])
    })
    .await;
    let broken = get(deployed, "broken").await;
    assert_eq!(broken["status"]["conditions"][0]["type"], "Mine");
    assert_eq!(broken["status"]["observedGeneration"], "2");

    // Two analyses later, each of which writes to another object.
    let messages_of_later =
        async || get(deployed, "later").await["status"]["validationMessages"].clone();
    put(deployed, "later", &json!([{}]), "default");
    until("the fault of another is in the status", async || {
        messages_of_later().await[0]["type"]["code"] == "IST0106"
    })
    .await;

    put(deployed, "later", &good, "default");
    until("it is corrected, too", async || {
        messages_of_later().await == json!([])
    })
    .await;
    assert_eq!(
        get(deployed, "broken").await["metadata"]["resourceVersion"],
        broken["metadata"]["resourceVersion"]
    );

    for untouched in ["good", "other"] {
        assert_eq!(get(deployed, untouched).await["status"], Value::Null);
    }

    reports_follow_changes_of_other_objects(deployed).await;
    reports_objects_once_their_tag_is_of_this_revision(deployed).await;
    stop.cancel();
    task.await.unwrap();
}

/// The messages of an object depend on other objects, and follow their changes.
async fn reports_follow_changes_of_other_objects(deployed: &Deployed) {
    let route =
        json!([{ "route": [{ "destination": { "host": "beside.default.svc.cluster.local" } }] }]);
    put(deployed, "beside", &route, "default");
    let codes = async || {
        let messages = get(deployed, "beside").await["status"]["validationMessages"].clone();
        let messages = messages.as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .map(|message| message["type"]["code"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };

    until("the service is missed", async || {
        codes().await == ["IST0101"]
    })
    .await;
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "beside", "namespace": "default" },
        "spec": { "ports": [{ "name": "http", "port": 80 }] },
    });

    deployed.cluster.apply(&service.to_string()).unwrap();
    until("the service exists", async || codes().await.is_empty()).await;
}

/// An object with a tag is analyzed once the tag belongs to this revision.
async fn reports_objects_once_their_tag_is_of_this_revision(deployed: &Deployed) {
    put(deployed, "tagged", &json!([{}]), "prod");
    put(deployed, "broken", &json!([{}]), "default");
    let codes = async |name: &str| {
        get(deployed, name).await["status"]["validationMessages"][0]["type"]["code"].clone()
    };
    until("what is ours is judged", async || {
        codes("broken").await == "IST0106"
    })
    .await;
    assert_eq!(
        codes("tagged").await,
        Value::Null,
        "the tag does not exist yet"
    );
    let tag = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "analysis-tag-prod", "labels": { "istio.io/tag": "prod", "istio.io/rev": "default" } },
    });
    deployed.cluster.apply(&tag.to_string()).unwrap();

    until("what has the tag is judged", async || {
        codes("tagged").await == "IST0106"
    })
    .await;
}
