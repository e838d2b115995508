//! Quarantined objects have a condition that says so.

use std::sync::Arc;

use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use navarch::status::{ObjectReport, ObjectReports, ReportedCondition, ReportedObjects};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, until};

/// The path of the object.
const PATH: &str = "/apis/networking.istio.io/v1/namespaces/default/virtualservices/refused";

/// What an Event says of it, if there is one.
async fn note(deployed: &Deployed) -> Value {
    let events = deployed
        .get("/apis/events.k8s.io/v1/namespaces/default/events")
        .await;
    let all = events["items"].as_array().cloned().unwrap_or_default();
    let found = all
        .iter()
        .find(|event| event["regarding"]["name"] == "refused" && event["reason"] == "Quarantined");
    found.map_or(Value::Null, |event| event["note"].clone())
}

/// Reports that one object is quarantined, until it is stopped.
async fn reporter(
    deployed: &Deployed,
    kind: Kind,
    object: &str,
) -> (
    watch::Sender<ReportedObjects>,
    CancellationToken,
    JoinHandle<()>,
) {
    let name = ObjectRef {
        kind,
        name: NamespacedName::new("default", object),
    };
    let message = Arc::from("no such host");
    let warning = Some(format!("{object}: no such host").into());
    let report = ObjectReport {
        is_true: true,
        reason: "RefusedByProxies",
        message,
        warning,
    };

    let (sender, reported) = watch::channel(Arc::new([(name, report)].into()));
    let cluster = deployed.as_navarch().await;
    let stop = CancellationToken::new();
    let identity = "istiod-1".to_owned();
    let controller = "istio.io/gateway-controller".to_owned();
    let condition = ReportedCondition::Quarantined;
    let task = tokio::spawn(
        ObjectReports {
            cluster,
            identity,
            controller,
            condition,
            reported,
        }
        .run(stop.clone()),
    );

    (sender, stop, task)
}

pub(crate) async fn a_quarantine_is_reported_by_a_condition_and_an_event(deployed: &Deployed) {
    let service = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": "refused", "namespace": "default" },
        "spec": { "hosts": ["a"], "http": [{ "route": [{ "destination": { "host": "a" } }] }] },
    });
    deployed.cluster.apply(&service.to_string()).unwrap();
    let (sender, stop, task) = reporter(deployed, Kind::VirtualService, "refused").await;
    let condition = async || deployed.get(PATH).await["status"]["conditions"][0].clone();
    until("the condition is there", async || {
        condition().await["status"] == "True"
    })
    .await;
    let first = condition().await;
    assert_eq!(
        (&first["type"], &first["message"]),
        (&json!("Quarantined"), &json!("no such host"))
    );
    until("the Event is there", async || {
        note(deployed)
            .await
            .as_str()
            .is_some_and(|note| note.contains("no such host"))
    })
    .await;
    sender.send_replace(Arc::default());
    until("the condition is taken back", async || {
        condition().await["status"] == "False"
    })
    .await;
    stop.cancel();
    task.await.unwrap();
}

/// A route is quarantined before anything is written of its parents.
pub(crate) async fn a_quarantined_route_gets_its_condition_once_it_has_a_parent(
    deployed: &Deployed,
) {
    let path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/early";
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": "early", "namespace": "default" }, "spec": {},
    });
    deployed.cluster.apply(&route.to_string()).unwrap();
    let (_sender, stop, task) = reporter(deployed, Kind::HttpRoute, "early").await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";

    let warnings = async || {
        let all = deployed.get(events).await["items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.into_iter()
            .filter(|event| event["regarding"]["name"] == "early")
            .collect::<Vec<_>>()
    };

    until("the Event is there", async || !warnings().await.is_empty()).await;
    assert_eq!(deployed.get(path).await["status"], Value::Null);
    let parent = json!({ "controllerName": "istio.io/gateway-controller", "parentRef": { "name": "edge" }, "conditions": [] });
    let status = json!({ "status": { "parents": [parent] } });
    let written = format!("{path}/status");
    deployed
        .cluster
        .call("PATCH", &written, "application/merge-patch+json", &status)
        .await
        .unwrap();

    let first = async || deployed.get(path).await["status"]["parents"][0]["conditions"][0].clone();
    until("its parent has the condition", async || {
        first().await["type"] == "Quarantined"
    })
    .await;
    assert_eq!(first().await["message"], "no such host");
    let warnings = warnings().await;
    assert!(
        warnings.len() == 1 && warnings[0]["series"].is_null(),
        "it is warned of once: {warnings:?}"
    );

    stop.cancel();
    task.await.unwrap();
}
