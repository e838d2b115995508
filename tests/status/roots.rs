//! The ConfigMaps with the mesh's root certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch::api::mesh::LabelSelector;
use navarch::status::{NamespaceScope, REVOCATIONS, REVOCATIONS_KEY, ROOTS_KEY, RootCertificates};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, until};

/// The path of a namespace's ConfigMap.
fn path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/istio-ca-root-cert")
}

async fn roots(deployed: &Deployed, namespace: &str) -> Value {
    deployed.get(&path(namespace)).await["data"]["root-cert.pem"].clone()
}

/// Creates a namespace.
fn make(deployed: &Deployed, name: &str, labels: &Value) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    deployed.cluster.apply(&namespace.to_string()).unwrap();
}

#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
pub(crate) async fn are_published_to_every_namespace_and_restored(deployed: &Deployed) {
    let (renew, bundle) = watch::channel(Arc::<str>::from(""));
    let (select, scope) = watch::channel(NamespaceScope::default());
    let name = "istio-ca-root-cert".to_owned();
    let controller = RootCertificates {
        cluster: deployed.as_navarch().await,
        name,
        key: ROOTS_KEY,
        roots: bundle,
        scope,
    };

    let stop = CancellationToken::new();
    let task = tokio::spawn(controller.run(stop.clone()));

    make(deployed, "shop", &json!({}));
    renew.send("one".into()).unwrap();

    for namespace in ["shop", "default", "kube-system"] {
        until("the roots are published", async || {
            roots(deployed, namespace).await == "one"
        })
        .await;
    }

    assert_eq!(
        deployed.get(&path("shop")).await["metadata"]["labels"]["istio.io/config"],
        "true"
    );
    assert_eq!(deployed.get(&path("kube-public")).await, Value::Null);

    let edited = json!({ "data": { "root-cert.pem": "mallory", "mine": "too" } });
    deployed
        .cluster
        .call(
            "PATCH",
            &path("shop"),
            "application/merge-patch+json",
            &edited,
        )
        .await
        .unwrap();

    until("an edit is reverted", async || {
        roots(deployed, "shop").await == "one"
    })
    .await;
    assert_eq!(deployed.get(&path("shop")).await["data"]["mine"], "too");
    deployed
        .cluster
        .call("DELETE", &path("shop"), "application/json", &Value::Null)
        .await
        .unwrap();

    until("a deleted ConfigMap is created again", async || {
        roots(deployed, "shop").await == "one"
    })
    .await;

    let labels = BTreeMap::from([("mesh".to_owned(), "yes".to_owned())]);
    let selectors = vec![LabelSelector {
        match_labels: labels,
        ..LabelSelector::default()
    }];
    select
        .send(NamespaceScope {
            selectors,
            only: None,
        })
        .unwrap();

    make(deployed, "bank", &json!({}));
    make(deployed, "post", &json!({ "mesh": "yes" }));
    until("the selected namespace has them", async || {
        roots(deployed, "post").await == "one"
    })
    .await;
    renew.send("two".into()).unwrap();
    until("new roots are written", async || {
        roots(deployed, "post").await == "two"
    })
    .await;
    assert_eq!(roots(deployed, "bank").await, Value::Null);
    assert_eq!(roots(deployed, "shop").await, "one");
    make(deployed, "bank", &json!({ "mesh": "yes" }));
    until("a namespace that is selected later has them", async || {
        roots(deployed, "bank").await == "two"
    })
    .await;

    // The revocation list is published the same way: its ConfigMap is created with the first list,
    // and emptied when the list is removed.
    let (revoke, lists) = watch::channel(Arc::<str>::from(""));
    let (_all, scope) = watch::channel(NamespaceScope::default());
    let cluster = deployed.as_navarch().await;
    let name = REVOCATIONS.to_owned();
    let controller = RootCertificates {
        cluster,
        name,
        key: REVOCATIONS_KEY,
        roots: lists,
        scope,
    };

    let listing = tokio::spawn(controller.run(stop.clone()));
    let list = async || {
        deployed
            .get("/api/v1/namespaces/shop/configmaps/istio-ca-crl")
            .await["data"]["ca-crl.pem"]
            .clone()
    };

    revoke.send("list".into()).unwrap();
    until("the list is published", async || list().await == "list").await;
    revoke.send("".into()).unwrap();
    until("the list is empty", async || list().await == "").await;

    stop.cancel();
    task.await.unwrap();
    listing.await.unwrap();
}
