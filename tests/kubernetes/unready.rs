//! A control plane that does not become ready reports the reason as an Event of its pod.

use anyhow::{Context, Result, ensure};
use navarch_testkit::client;
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use super::edge;
use super::{cluster, program};

/// The pod's name.
const POD: &str = "istiod-unready";
const NAMESPACE: &str = "istio-system";

#[tokio::test(flavor = "multi_thread")]
async fn unreadiness_is_reported_as_an_event_of_the_own_pod() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let writer = cluster.writer().await?;
    let metadata = json!({"name": "default", "namespace": NAMESPACE});
    writer
        .put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        .await?;
    writer
        .put(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
        .await?;

    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": NAMESPACE},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "discovery", "image": "navarch"}]},
    });
    writer.put(&pod).await?;
    writer
        .put(&edge::mesh("istio", "connectTimeout: [broken\n"))
        .await?;

    let environment = [("POD_NAME", POD), ("POD_NAMESPACE", NAMESPACE)];
    let mut navarch =
        Navarch::launch_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &environment)
            .await?;
    let path = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
    let events = async || -> Vec<Value> {
        let all = writer.get(&path).await.unwrap_or_default()["items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.into_iter()
            .filter(|event| event["regarding"]["name"] == POD)
            .collect()
    };

    until("an Event has the reason", async || {
        !events().await.is_empty()
    })
    .await;
    let all = events().await;
    let note = all[0]["note"].as_str().unwrap_or_default();
    ensure!(
        (&all[0]["type"], &all[0]["reason"]) == (&json!("Warning"), &json!("NotReady")),
        "{all:?}"
    );

    ensure!(
        note.contains("ConfigMap/istio-system/istio") && !note.contains('\n'),
        "{note}"
    );
    let body = client::get(navarch.http, "localhost", "/ready", &[]).await?;
    ensure!(
        body.status == 503
            && body
                .body
                .lines()
                .next()
                .is_some_and(|line| note.contains(line)),
        "{body:?} {note}"
    );

    ensure!(
        navarch.output().contains("not ready"),
        "the log has the reason, too: {}",
        navarch.output()
    );
    writer.put(&edge::mesh("istio", "")).await?;
    navarch.wait_ready().await?;
    ensure!(
        events().await.len() == 1,
        "it is reported once: {:?}",
        events().await
    );

    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}
