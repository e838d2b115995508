//! The webhooks during a control plane's life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use crate::configuration::{broken, good};
use crate::installed::Installed;
use crate::{any_pods, configuration, limits, pods, until};

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_serve_the_api_server_throughout_their_lifecycle() {
    let mut installed = Installed::start(&["deployment-controller", "replicaset-controller"]).await;
    pods::open_shop(&installed);

    // Before the first replica starts, objects pass, as validation still fails open; pods for
    // injection are rejected.
    assert!(installed.apply(&broken("early")).succeeded);
    let output = installed.apply(&pods::pod("early"));
    assert!(
        !output.succeeded && output.text.contains("failed calling webhook"),
        "{output:?}"
    );

    let first = installed.navarch("first").await;
    let root = installed.authority.root();
    until("it is registered and validation is closed", async || {
        installed.is_registered(&root).await
    })
    .await;
    configuration::is_judged(&installed);
    limits::hold(installed.port).await;

    pods::are_injected(&installed).await;
    any_pods::are_taken(&installed).await;
    edits_are_undone(&installed, &root).await;

    a_second_replica_writes_only_edited_configurations(&installed, &first, &root).await;

    rotation_leaves_no_gap(&installed, &root).await;

    installed.cluster.kill_api_server();
    installed.cluster.start_api_server().await.unwrap();
    until("a new API server asks", async || {
        installed.apply(&good("after")).succeeded
    })
    .await;
    assert!(!installed.apply(&broken("after-broken")).succeeded);

    // The Service still routes requests to a replica that is stopping.
    let xds = first.xds;
    let ended = tokio::spawn(first.stop());
    until("the server ends", async || {
        tokio::net::TcpStream::connect(xds).await.is_err()
    })
    .await;
    assert!(limits::is_answered(installed.port).await);

    assert!(ended.await.unwrap().unwrap());

    // Without Navarch, objects and pods that need a webhook are rejected.
    let output = installed.apply(&good("down"));
    assert!(
        !output.succeeded && output.text.contains("failed calling webhook"),
        "{output:?}"
    );
    assert!(!installed.apply(&pods::pod("down")).succeeded);
    let _again = installed.navarch("again").await;

    until("it is back", async || {
        installed.apply(&good("back")).succeeded
    })
    .await;
    assert!(!installed.apply(&broken("back-broken")).succeeded);
}

/// A second replica has the same root: it writes a configuration only after someone has edited it.
async fn a_second_replica_writes_only_edited_configurations(
    installed: &Installed,
    first: &Navarch,
    root: &str,
) {
    const EDITED: &str = "istiod-default-validator";
    let before = versions(installed).await;
    let second = installed
        .navarch_at("second", navarch_testkit::ports::free().unwrap())
        .await;
    let signal = |name: &str| {
        let pid = first.pid().to_string();
        assert!(
            std::process::Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    };

    // Pause the first replica until the second has reverted the edit.
    signal("-STOP");
    let garbage =
        json!([{ "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg==" }]);
    patch(installed, EDITED, &garbage);
    until("the second undoes an edit", async || {
        installed.is_registered(root).await
    })
    .await;
    signal("-CONT");
    let written =
        |(one, version): &(String, Value)| (one != EDITED).then(|| (one.clone(), version.clone()));
    let others =
        |versions: &[(String, Value)]| versions.iter().filter_map(written).collect::<Vec<_>>();
    let after = versions(installed).await;
    assert_eq!(others(&after), others(&before));

    assert!(second.stop().await.unwrap());
}

/// The names and versions of all webhook configurations.
async fn versions(installed: &Installed) -> Vec<(String, Value)> {
    let mut versions = Vec::new();
    for kind in ["mutating", "validating"] {
        let list = installed
            .get(&format!(
                "/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            ))
            .await;
        versions.extend(list["items"].as_array().unwrap().iter().map(|item| {
            let metadata = &item["metadata"];
            (
                metadata["name"].as_str().unwrap().to_owned(),
                metadata["resourceVersion"].clone(),
            )
        }));
    }
    versions
}

/// Edits a validating webhook configuration.
fn patch(installed: &Installed, name: &str, patch: &Value) {
    let patch = patch.to_string();
    let output = installed.kubectl(
        &[
            "patch",
            "validatingwebhookconfiguration",
            name,
            "--type=json",
            "-p",
            &patch,
        ],
        "",
    );
    assert!(output.succeeded, "{output:?}");
}

/// Edits of our configurations are reverted, others stay.
async fn edits_are_undone(installed: &Installed, root: &str) {
    let garbage = json!([
        { "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg==" },
        { "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore" },
    ]);
    patch(installed, "istiod-default-validator", &garbage);
    until("an edit is undone", async || {
        installed.is_registered(root).await
    })
    .await;

    let of_revision = |name: &str, revision: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": name, "labels": { "istio.io/rev": revision } },
            "webhooks": [{
                "name": "other.example.com", "clientConfig": { "url": "https://localhost:1/" }, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            }],
        })
    };

    assert!(installed.apply(&of_revision("other", "canary")).succeeded);

    // A configuration of our own that is created later gets its CA bundle.
    let own = of_revision("own", "default");
    assert!(installed.apply(&own).succeeded);
    let is_filled = async || {
        installed.webhooks("validating", "own").await[0]["clientConfig"]["caBundle"].is_string()
    };
    until("one of our revision has our roots", is_filled).await;
    assert!(
        installed
            .kubectl(&["delete", "validatingwebhookconfiguration", "own"], "")
            .succeeded
    );

    let hooks = installed.webhooks("validating", "other").await;
    assert!(
        hooks[0]["clientConfig"]["caBundle"].is_null() && hooks[0]["failurePolicy"] == "Ignore",
        "{hooks:?}"
    );
}

/// The CA is replaced by one with another root while the API server keeps calling: every call
/// succeeds, with either root.
async fn rotation_leaves_no_gap(installed: &Installed, old: &str) {
    let stop = Arc::new(AtomicBool::new(false));
    let requests = Arc::new(AtomicUsize::new(0));
    let client = installed.cluster.client().await.unwrap();
    let stopped = stop.clone();
    let count = requests.clone();
    let asking = tokio::spawn(async move {
        let path = "/apis/networking.istio.io/v1/namespaces/default/virtualservices?dryRun=All";
        while !stopped.load(Ordering::SeqCst) {
            let body = serde_json::to_vec(&good("asking")).unwrap();
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(body)
                .unwrap();
            client.request::<Value>(request).await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });

    installed.authority.replace();
    let new = installed.authority.root();
    assert_ne!(old, new);
    until("both are trusted", async || {
        installed.trusts_both(old, &new).await || asking.is_finished()
    })
    .await;

    // Earlier processes were killed; the rotation waits a minute for their proxies.
    let signs =
        async || limits::serves_certificate_of(installed.port, &new).await || asking.is_finished();
    let at_first = async {
        while !signs().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    drop(tokio::time::timeout(Duration::from_secs(60), at_first).await);

    until("the new one signs", signs).await;
    stop.store(true, Ordering::SeqCst);
    asking.await.unwrap();
    assert!(requests.load(Ordering::SeqCst) > 50, "{requests:?}");
    assert!(!installed.apply(&broken("rotated")).succeeded);
}
