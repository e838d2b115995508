//! Staged rollouts with several replicas: they agree, also after a restart, and the object's status
//! has the progress.

use navarch_testkit::client;
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use crate::whole::start;
use crate::{Deployed, NAMESPACE, until};

/// The path of the object.
const PATH: &str = "/apis/networking.istio.io/v1/namespaces/default/virtualservices/staged";

/// Writes the object.
fn write(deployed: &Deployed, host: &str, annotations: &Value) {
    let service = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": "staged", "namespace": "default", "annotations": annotations },
        "spec": { "hosts": [host], "http": [{ "route": [{ "destination": { "host": "a" } }] }] },
    });
    deployed.cluster.apply(&service.to_string()).unwrap();
}

/// The state of the rollout at a replica: state and stage; `None` without a rollout.
async fn rollout_state(navarch: &Navarch) -> Option<(String, u64)> {
    let page: Value = serde_json::from_str(&navarch.page("/debug/rollout").await.unwrap()).unwrap();
    let one = &page["rollouts"][0];
    Some((one["state"].as_str()?.to_owned(), one["stage"].as_u64()?))
}

/// The host in the routes of a replica's proxies before the change.
async fn in_force(navarch: &Navarch) -> Value {
    let page: Value = serde_json::from_str(&navarch.page("/debug/configz").await.unwrap()).unwrap();
    let all = page.as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|one| one["metadata"]["name"] == "staged");
    found.map_or(Value::Null, |one| one["spec"]["hosts"][0].clone())
}

async fn send_command(navarch: &Navarch, order: &str) {
    let body = json!({ "object": "VirtualService/default/staged", "order": order }).to_string();
    let reply = client::post(
        navarch.monitoring,
        &navarch.monitoring.to_string(),
        "/debug/rollout",
        body,
    )
    .await
    .unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
pub(crate) async fn replicas_agree_and_forget_no_abort(deployed: &Deployed) {
    let condition = async || {
        let object = deployed.get(PATH).await;
        let all = object["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.into_iter()
            .find(|one| one["type"] == "RolledOut")
            .unwrap_or_default()
    };

    write(deployed, "old", &json!({}));
    let one = start(deployed, "istiod-1").await;
    let other = start(deployed, "istiod-2").await;
    until("the first version is read", async || {
        in_force(&one).await == "old" && in_force(&other).await == "old"
    })
    .await;
    write(
        deployed,
        "new",
        &json!({ "navarch.io/rollout": "10%,50%", "navarch.io/rollout-pause": "1h" }),
    );

    let both = async |state: &str, stage: u64| {
        let wanted = Some((state.to_owned(), stage));
        rollout_state(&one).await == wanted && rollout_state(&other).await == wanted
    };
    until("both are at the first stage", async || {
        both("rolling", 1).await
    })
    .await;

    until("the condition has this state", async || {
        condition().await["reason"] == "Rolling"
    })
    .await;
    assert!(
        condition().await["message"]
            .as_str()
            .unwrap()
            .contains("stage 1 of 3: 10%")
    );

    send_command(&one, "promote").await;
    until("both are at the second stage", async || {
        both("rolling", 2).await
    })
    .await;
    send_command(&other, "pause").await;
    until("both are paused", async || both("paused", 2).await).await;
    send_command(&other, "abort").await;

    until("both have stopped", async || both("stopped", 0).await).await;
    until("the condition has this state", async || {
        condition().await["reason"] == "Stopped"
    })
    .await;
    assert_eq!(
        (in_force(&one).await, in_force(&other).await),
        (json!("old"), json!("old"))
    );

    // The abort is stored: it survives the restart of all replicas.
    assert!(one.stop().await.unwrap() && other.stop().await.unwrap());
    let one = start(deployed, "istiod-3").await;
    let other = start(deployed, "istiod-4").await;
    for replica in [&one, &other] {
        assert_eq!(
            (rollout_state(replica).await, in_force(replica).await),
            (Some(("stopped".to_owned(), 0)), json!("old"))
        );
    }

    // Within a stage as well.
    write(
        deployed,
        "newer",
        &json!({ "navarch.io/rollout": "10%", "navarch.io/rollout-pause": "1h" }),
    );
    until("the first stage", async || {
        rollout_state(&one).await == Some(("rolling".to_owned(), 1))
    })
    .await;
    assert!(one.stop().await.unwrap());
    let one = start(deployed, "istiod-5").await;
    assert_eq!(
        (rollout_state(&one).await, in_force(&one).await),
        (Some(("rolling".to_owned(), 1)), json!("old"))
    );

    // The next change is rolled out completely.
    write(
        deployed,
        "newest",
        &json!({ "navarch.io/rollout": "10%", "navarch.io/rollout-pause": "0s" }),
    );
    until("it is in force", async || {
        in_force(&one).await == "newest" && in_force(&other).await == "newest"
    })
    .await;
    until("the condition has this state", async || {
        condition().await["status"] == "True"
    })
    .await;
    assert_eq!(
        (rollout_state(&one).await, rollout_state(&other).await),
        (None, None)
    );
    let maps =
        format!("/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=navarch.io%2Frollout");
    let maps = deployed.get(&maps).await;
    assert_eq!(maps["items"].as_array().map(Vec::len), Some(1), "{maps}");

    assert!(one.stop().await.unwrap() && other.stop().await.unwrap());
}

/// Follows the scenario above, whose ConfigMap is there.
pub(crate) async fn state_of_a_later_release_is_left_unchanged(deployed: &Deployed) {
    let maps =
        format!("/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=navarch.io%2Frollout");
    let stored = async || deployed.get(&maps).await["items"][0].clone();
    let replica = start(deployed, "istiod-6").await;
    let before = in_force(&replica).await;

    let name = stored().await["metadata"]["name"].clone();
    let name = name.as_str().unwrap();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}");
    let later = json!({ "data": { "format": "2" } });
    deployed
        .cluster
        .call("PATCH", &path, "application/merge-patch+json", &later)
        .await
        .unwrap();
    let written = stored().await;
    write(
        deployed,
        "held",
        &json!({ "navarch.io/rollout": "10%", "navarch.io/rollout-pause": "0s" }),
    );

    until("the rollout waits, with the reason", async || {
        let page = replica.page("/debug/rollout").await.unwrap();
        let page: Value = serde_json::from_str(&page).unwrap();
        let reason = page["rollouts"][0]["reason"].as_str().unwrap_or_default();
        reason.contains(name) && reason.contains("format is 2")
    })
    .await;
    assert_eq!(in_force(&replica).await, before);
    let host = replica.monitoring.to_string();
    let body = json!({ "object": "VirtualService/default/staged", "order": "promote" }).to_string();
    let reply = client::post(replica.monitoring, &host, "/debug/rollout", body)
        .await
        .unwrap();
    assert_eq!(reply.status, 500, "{reply:?}");
    assert_eq!(stored().await, written);

    // Without it, the rollout starts.
    deployed
        .cluster
        .kubectl(&["delete", "configmap", name, "--namespace", NAMESPACE], "")
        .unwrap();
    until("it is in force", async || {
        in_force(&replica).await == "held"
    })
    .await;
    assert!(replica.stop().await.unwrap());
}
