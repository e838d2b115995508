//! Random pods: a real API server accepts the injected pods.

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::installed::Installed;

const PODS: usize = 150;

/// A namespace whose pods are not injected.
const BARE: &str = "bare";

/// The pods, the same in every run.
fn pods() -> Vec<Value> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = crate::random_pods::pod();
    (0..PODS)
        .map(|_| strategy.new_tree(&mut runner).unwrap().current())
        .collect()
}

/// The pod that the API server would store in a namespace, by a dry run.
async fn tried(client: &kube::Client, pod: &Value, namespace: &str) -> Result<Value, String> {
    let mut pod = pod.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["namespace"] = json!(namespace);
    pod["spec"]["serviceAccountName"] = json!("default");
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict");
    let body = serde_json::to_vec(&pod).unwrap();
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    client
        .request::<Value>(request)
        .await
        .map_err(|error| error.to_string())
}

/// Whether the API server rejects a mistake of the user: an annotation that mounts an undefined
/// volume.
fn is_users_mistake(error: &str) -> bool {
    error.contains(".volumeMounts[") && error.contains(r#".name: Not found: "u""#)
}

/// The parts of a pod that its user has written.
fn written(pod: &Value) -> Value {
    let meta = &pod["metadata"];
    json!({
        "metadata": { "name": meta["name"], "labels": meta["labels"], "annotations": meta["annotations"] },
        "spec": pod["spec"],
    })
}

/// A pod that is valid without injection is also valid with it, unless the webhook returns an
/// error; and injecting the result again does not change it.
pub(crate) async fn are_taken(installed: &Installed) {
    let bare = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": BARE } });
    assert!(installed.apply(&bare).succeeded);
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": BARE } });
    assert!(installed.apply(&account).succeeded);
    let client = installed.cluster.client().await.unwrap();
    let mut injected = 0;
    let mut faults = Vec::new();

    for pod in pods() {
        if tried(&client, &pod, BARE).await.is_err() {
            continue;
        }

        let once = match tried(&client, &pod, "shop").await {
            Ok(once) => once,
            Err(error) if error.contains("denied the request") || is_users_mistake(&error) => {
                continue;
            }
            Err(error) => {
                faults.push(format!("{error}\n{pod}"));
                continue;
            }
        };

        injected +=
            usize::from(once["metadata"]["annotations"]["sidecar.istio.io/status"].is_string());

        match tried(&client, &written(&once), "shop").await {
            Ok(twice) if twice["spec"] == once["spec"] => {}
            Ok(twice) => faults.push(format!(
                "changed again: {pod}\n{}\n{}",
                once["spec"], twice["spec"]
            )),
            Err(error) => faults.push(format!("{error}\nagain: {pod}")),
        }
    }

    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n\n")
    );

    assert!(injected > PODS / 4, "only {injected} pods were injected");
}
