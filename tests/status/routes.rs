//! Number and latency of status updates after changes of Gateway API routes.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::gateways::definition;
use crate::{Deployed, until, whole};

const ROUTES: usize = 20;
/// The number of changes of one of them.
const CHANGES: usize = 100;
/// Timeout of a status update.
const TELL_TIMEOUT: Duration = Duration::from_secs(30);

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
        "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    })
}

fn route(number: usize, turn: usize) -> Value {
    let filter = json!({
        "type": "ResponseHeaderModifier",
        "responseHeaderModifier": { "set": [{ "name": "x-turn", "value": turn.to_string() }] },
    });
    let rule =
        json!({ "filters": [filter], "backendRefs": [{ "name": "kubernetes", "port": 443 }] });
    let spec = json!({
        "parentRefs": [{ "name": "web" }], "hostnames": [format!("h{number}.example.com")], "rules": [rule],
    });
    object("HTTPRoute", &format!("route-{number}"), &spec)
}

/// The `observedGeneration` in a route's status.
fn observed_generation(route: &Value) -> Option<i64> {
    route
        .pointer("/status/parents/0/conditions/0/observedGeneration")?
        .as_i64()
}

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn route_status_is_updated_once_and_soon() {
    let deployed = Deployed::start().await;
    let kinds = [
        ("GatewayClass", "gatewayclasses"),
        ("Gateway", "gateways"),
        ("HTTPRoute", "httproutes"),
    ];

    for (kind, plural) in kinds {
        let scope = if kind == "GatewayClass" {
            "Cluster"
        } else {
            "Namespaced"
        };
        deployed
            .cluster
            .apply(&definition(kind, plural, scope).to_string())
            .unwrap();
    }

    deployed.cluster.wait_for_crds().unwrap();
    let navarch = whole::start(&deployed, "only").await;
    let writer = deployed.cluster.writer().await.unwrap();
    let gateway = json!({
        "gatewayClassName": "istio", "addresses": [{ "type": "Hostname", "value": "kubernetes.default.svc.cluster.local" }],
        "listeners": [{ "name": "http", "port": 443, "protocol": "HTTP" }],
    });
    writer
        .put(&object("Gateway", "web", &gateway))
        .await
        .unwrap();

    let routes = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";
    for number in 0..ROUTES {
        writer.put(&route(number, 0)).await.unwrap();
    }

    until("all routes have the status", async || {
        let all = deployed.get(routes).await;
        all["items"].as_array().is_some_and(|all| {
            all.len() == ROUTES && all.iter().all(|one| observed_generation(one).is_some())
        })
    })
    .await;

    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "gateway.networking.k8s.io",
        "v1",
        "HTTPRoute",
    ));
    let api: Api<DynamicObject> = Api::all_with(deployed.cluster.client().await.unwrap(), &kind);
    let version = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();

    let mut events = api
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let before = answers(&deployed).len();
    let mut took = Vec::new();

    for turn in 1..=CHANGES {
        let number = turn % ROUTES;
        let changed = Instant::now();
        let name = format!("route-{number}");
        writer.put(&route(number, turn)).await.unwrap();

        loop {
            let event = tokio::time::timeout(TELL_TIMEOUT, events.try_next())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            let WatchEvent::Modified(seen) = event else {
                continue;
            };

            let generation = seen.metadata.generation;
            if seen.metadata.name.as_ref() == Some(&name)
                && observed_generation(&seen.data) == generation
            {
                break;
            }
        }

        took.push(changed.elapsed());
    }

    took.sort_unstable();
    println!(
        "status updated after {:?} (median), {:?} (worst of {CHANGES})",
        took[CHANGES / 2],
        took[CHANGES - 1]
    );
    assert!(navarch.stop().await.unwrap(), "navarch exits on SIGTERM");

    // The audit log is written shortly after the response.
    until("all writes are in the audit log", async || {
        answers(&deployed).len() >= before + CHANGES
    })
    .await;
    let answers = answers(&deployed).split_off(before);
    assert_eq!(
        answers.len(),
        CHANGES,
        "one write for each change: {answers:?}"
    );

    assert!(
        answers.iter().all(|code| *code == 200),
        "no write fails: {answers:?}"
    );
}

/// The status codes of the responses to writes of a route's status.
fn answers(deployed: &Deployed) -> Vec<i64> {
    let log = std::fs::read_to_string(&deployed.audit).unwrap_or_default();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let writes = events.filter(|event| {
        let uri = event["requestURI"].as_str().unwrap_or_default();
        event["verb"] == "patch" && uri.contains("/httproutes/") && uri.contains("/status")
    });
    writes
        .filter_map(|event| event["responseStatus"]["code"].as_i64())
        .collect()
}
