//! Automatically allocated addresses of ServiceEntries.

use navarch::status::{AddressAllocation, NamespaceScope, Range};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, until};

/// Writes a ServiceEntry.
fn put(deployed: &Deployed, name: &str, hosts: &[&str], labels: &Value) {
    let entry = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "ServiceEntry",
        "metadata": { "name": name, "namespace": "default", "labels": labels },
        "spec": {
            "hosts": hosts,
            "resolution": "DNS",
            "ports": [{ "number": 443, "name": "tls", "protocol": "TLS" }],
        },
    });
    deployed.cluster.apply(&entry.to_string()).unwrap();
}

/// The status of a ServiceEntry.
async fn status(deployed: &Deployed, name: &str) -> Value {
    let path = format!("/apis/networking.istio.io/v1/namespaces/default/serviceentries/{name}");
    deployed.get(&path).await["status"].clone()
}

/// The addresses of a ServiceEntry, as `host=address`.
async fn addresses(deployed: &Deployed, name: &str) -> Vec<String> {
    let status = status(deployed, name).await;
    let given = status["addresses"].as_array().into_iter().flatten();
    given
        .map(|given| {
            format!(
                "{}={}",
                given["host"].as_str().unwrap(),
                given["value"].as_str().unwrap()
            )
        })
        .collect()
}

/// A running controller.
async fn start(deployed: &Deployed, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let (_, scope) = watch::channel(NamespaceScope::default());
    let ranges = [Range::IPV4, Range::IPV6];
    let controller = AddressAllocation {
        cluster: deployed.as_navarch().await,
        ranges,
        scope,
    };
    tokio::spawn(controller.run(stop.clone()))
}

pub(crate) async fn are_allocated_once_and_released(deployed: &Deployed) {
    let stop = CancellationToken::new();
    let task = start(deployed, &stop).await;
    put(deployed, "a", &["a.com"], &json!({}));
    let first = ["a.com=240.240.0.1", "a.com=2001:2::1"];
    until("addresses are given", async || {
        addresses(deployed, "a").await == first
    })
    .await;

    put(deployed, "b", &["b.com", "*.b.com"], &json!({}));
    let second = ["b.com=240.240.0.2", "b.com=2001:2::2"];
    until("others get others", async || {
        addresses(deployed, "b").await == second
    })
    .await;

    // Conditions of other controllers stay.
    let condition = json!({ "status": { "conditions": [{ "type": "Mine", "status": "True" }] } });
    let path = "/apis/networking.istio.io/v1/namespaces/default/serviceentries/a/status";
    deployed
        .cluster
        .call("PATCH", path, "application/merge-patch+json", &condition)
        .await
        .unwrap();

    put(deployed, "a", &["a.com", "a2.com"], &json!({}));
    let more = [
        "a.com=240.240.0.1",
        "a.com=2001:2::1",
        "a2.com=240.240.0.3",
        "a2.com=2001:2::3",
    ];

    until("a new host gets one", async || {
        addresses(deployed, "a").await == more
    })
    .await;
    assert_eq!(status(deployed, "a").await["conditions"][0]["type"], "Mine");

    put(
        deployed,
        "b",
        &["b.com", "*.b.com"],
        &json!({ "networking.istio.io/enable-autoallocate-ip": "false" }),
    );

    until(
        "an entry that disables allocation has no addresses",
        async || addresses(deployed, "b").await.is_empty(),
    )
    .await;
    stop.cancel();
    task.await.unwrap();

    // If two have the same address, as written by two controllers, the older one keeps it.
    let same = json!({ "status": { "addresses": [{ "value": "240.240.0.1", "host": "c.com" }] } });
    put(deployed, "c", &["c.com"], &json!({}));
    let path = "/apis/networking.istio.io/v1/namespaces/default/serviceentries/c/status";
    deployed
        .cluster
        .call("PATCH", path, "application/merge-patch+json", &same)
        .await
        .unwrap();

    let stop = CancellationToken::new();
    let task = start(deployed, &stop).await;
    until("the younger has new ones", async || {
        addresses(deployed, "c").await.len() == 2
    })
    .await;
    assert_eq!(addresses(deployed, "a").await, more);
    stop.cancel();

    task.await.unwrap();
}
