//! An injection configuration that is unreadable, missing or invalid: no pod is admitted without
//! its proxy.

use navarch_testkit::client;
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use crate::installed::{Installed, NAMESPACE};
use crate::pods::{self, SHOP, containers};
use crate::until;

/// The ConfigMap of the injection configuration.
const MAP: &str = "istio-sidecar-injector";
/// The API server's error for a 503; it drops the response's body.
const UNAVAILABLE: &str = "the server is currently unable to handle the request";
/// The role that permits Navarch to read it.
const ROLE: &str = "istiod-clusterrole-istio-system";

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_admitted_without_its_proxy() {
    let installed = Installed::start(&[]).await;
    pods::open_shop(&installed);
    let map = map(&installed).await;
    it_cannot_be_read(&installed).await;

    // Missing at the start: the ConfigMap is known to be absent, so xDS and validation are served.
    // Pods are rejected, and the reason is reported everywhere.
    assert!(
        installed
            .kubectl(&["delete", "configmap", "-n", NAMESPACE, MAP], "")
            .succeeded
    );
    let navarch = installed.navarch("missing").await;

    is_rejected(&installed, "missing", UNAVAILABLE).await;
    assert!(
        ready(&navarch)
            .await
            .1
            .contains("istio-sidecar-injector does not exist")
    );

    state_is(&navarch, "failed").await;

    // Invalid.
    let mut broken = map.clone();
    broken["data"]["config"] = json!("{policy: enabled, templates: {sidecar: '{{ nonsense'}}");
    assert!(installed.apply(&broken).succeeded);
    until("it is read", async || {
        ready(&navarch).await.1.contains("template \"sidecar\"")
    })
    .await;

    is_rejected(&installed, "broken", UNAVAILABLE).await;
    state_is(&navarch, "failed").await;

    // Valid.
    assert!(installed.apply(&map).succeeded);
    until("the map is read", async || {
        navarch
            .metrics()
            .await
            .unwrap()
            .contains("state=\"ready\"} 1")
    })
    .await;
    is_injected(&installed, "good").await;
    assert_eq!(ready(&navarch).await, (200, String::new()));

    // Invalid and then deleted: the last valid one stays in force.
    assert!(installed.apply(&broken).succeeded);
    state_is(&navarch, "stale").await;
    is_injected(&installed, "broken-later").await;
    assert!(
        installed
            .kubectl(&["delete", "configmap", "-n", NAMESPACE, MAP], "")
            .succeeded
    );

    until("the deletion is detected", async || {
        ready(&navarch).await.1.contains("does not exist")
    })
    .await;
    is_injected(&installed, "gone-later").await;
}

/// Starts Navarch without the right to read the ConfigMap: it is not ready, and pods are rejected.
/// Then the right is granted.
async fn it_cannot_be_read(installed: &Installed) {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}");
    let rights = installed.get(&path).await;
    let rules = rights["rules"].as_array().unwrap();
    let place = rules
        .iter()
        .position(|rule| rule["resources"] == json!(["configmaps"]))
        .unwrap();
    let patch = |value: &Value| {
        let patch = json!([{ "op": "add", "path": format!("/rules/{place}/resourceNames"), "value": value }]);
        let output = installed.kubectl(
            &[
                "patch",
                "clusterrole",
                ROLE,
                "--type=json",
                "-p",
                &patch.to_string(),
            ],
            "",
        );
        assert!(output.succeeded, "{output:?}");
    };

    // The mesh config is in another ConfigMap. Other reads of ConfigMaps, and thus the first sync,
    // are delayed as well.
    patch(&json!(["istio"]));
    let mut navarch = installed.launch_at("unreadable", installed.port).await;
    until("readiness has the reason", async || {
        let (status, body) = ready(&navarch).await;
        assert_eq!(status, 503, "{body}");
        body.contains("forbidden") && body.contains("injection: ")
    })
    .await;
    state_is(&navarch, "pending").await;
    is_rejected(installed, "unreadable", "failed calling webhook").await;
    patch(&json!([]));
    navarch.wait_ready().await.unwrap();
    is_injected(installed, "readable").await;
    assert!(navarch.stop().await.unwrap());
}

/// The ConfigMap in a form that can be applied again.
async fn map(installed: &Installed) -> Value {
    let found = installed
        .get(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{MAP}"))
        .await;
    let metadata = json!({ "name": MAP, "namespace": NAMESPACE });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": found["data"] })
}

/// The response of `/ready`; 503 while the port is closed.
async fn ready(navarch: &Navarch) -> (u16, String) {
    let reply = client::get(navarch.http, "localhost", "/ready", &[]).await;
    reply.map_or_else(
        |_| (503, String::new()),
        |reply| (reply.status.as_u16(), reply.body),
    )
}

/// Waits until the metric has this state.
async fn state_is(navarch: &Navarch, state: &str) {
    let line = format!("navarch_injector_state{{state=\"{state}\"}} 1\n");
    until(&line, async || {
        navarch
            .metrics()
            .await
            .is_ok_and(|metrics| metrics.contains(&line))
    })
    .await;
}

/// Tries to create a pod until it is rejected with this reason.
async fn is_rejected(installed: &Installed, name: &str, why: &str) {
    until(why, async || {
        let output = installed.apply(&pods::pod(name));
        assert!(!output.succeeded, "{output:?}");
        output.text.contains(why)
    })
    .await;
}

/// Creates a pod, which gets its proxy.
async fn is_injected(installed: &Installed, name: &str) {
    let output = installed.apply(&pods::pod(name));
    assert!(output.succeeded, "{output:?}");
    let pod = installed
        .get(&format!("/api/v1/namespaces/{SHOP}/pods/{name}"))
        .await;
    assert!(
        containers(&pod).contains(&"istio-proxy".to_owned()),
        "{pod:#}"
    );
}
