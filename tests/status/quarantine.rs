//! Quarantined objects get a condition and an Event.

use std::sync::Arc;

use navarch::api::any_object::AnyObject;
use navarch::api::decode::{Outcome, decode_value};
use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use navarch::api::uid::Uid;
use navarch::status::{
    KeptQuarantine, ObjectReport, ObjectReports, QuarantineOutcome, QuarantineStore,
    ReportedCondition, ReportedObjects,
};
use navarch_testkit::client;
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::whole::start;
use crate::{Deployed, NAMESPACE, until};

/// The path of the object.
const PATH: &str = "/apis/networking.istio.io/v1/namespaces/default/virtualservices/rejected";

/// The message of the Event, if there is one.
async fn note(deployed: &Deployed) -> Value {
    let events = deployed
        .get("/apis/events.k8s.io/v1/namespaces/default/events")
        .await;
    let all = events["items"].as_array().cloned().unwrap_or_default();
    let found = all
        .iter()
        .find(|event| event["regarding"]["name"] == "rejected" && event["reason"] == "Quarantined");
    found.map_or(Value::Null, |event| event["note"].clone())
}

/// Runs the reporter with one quarantined object, until it is stopped.
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
        "metadata": { "name": "rejected", "namespace": "default" },
        "spec": { "hosts": ["a"], "http": [{ "route": [{ "destination": { "host": "a" } }] }] },
    });

    deployed.cluster.apply(&service.to_string()).unwrap();
    let (sender, stop, task) = reporter(deployed, Kind::VirtualService, "rejected").await;

    let condition = async || deployed.get(PATH).await["status"]["conditions"][0].clone();
    until("the condition is written", async || {
        condition().await["status"] == "True"
    })
    .await;

    let first = condition().await;
    assert_eq!(
        (&first["type"], &first["message"]),
        (&json!("Quarantined"), &json!("no such host"))
    );

    until("the Event is written", async || {
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

/// A route is quarantined before its parents have a status.
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

    until("the Event is written", async || {
        !warnings().await.is_empty()
    })
    .await;
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
        "there is one warning: {warnings:?}"
    );

    stop.cancel();
    task.await.unwrap();
}

/// A VirtualService for a host.
fn shared(host: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": "shared", "namespace": "default" },
        "spec": { "hosts": [host], "http": [{ "route": [{ "destination": { "host": "a" } }] }] },
    })
}

/// The host in the routes of a replica's proxies.
async fn in_force(navarch: &Navarch) -> Value {
    let page: Value = serde_json::from_str(&navarch.page("/debug/configz").await.unwrap()).unwrap();
    let all = page.as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|one| one["metadata"]["name"] == "shared");
    found.map_or(Value::Null, |one| one["spec"]["hosts"][0].clone())
}

/// One replica stores its decision, with the rights of the control plane.
async fn judge(deployed: &Deployed, before: AnyObject) {
    let path = "/apis/networking.istio.io/v1/namespaces/default/virtualservices/shared";
    let written = deployed.get(path).await;
    let store = QuarantineStore::new(&deployed.as_navarch().await, NAMESPACE);
    let stored = store.list().await.unwrap();

    let object = before.object_ref();
    let earlier = stored.readable.get(&object);
    let kept = KeptQuarantine {
        version: earlier.and_then(|one| one.version.clone()),
        object,
        generation: written["metadata"]["generation"].as_i64().unwrap(),
        uid: Uid::new(written["metadata"]["uid"].as_str().unwrap()),
        created: None,
        votes: [].into(),
        outcome: Some(QuarantineOutcome::Quarantined {
            message: "rejected by 2 of 2".to_owned(),
            others: None,
            rejecting: None,
            jury: None,
            before: Some(before),
        }),
        rejudged: 0,
    };

    store.put(&kept).await.unwrap();
}

pub(crate) async fn replicas_share_quarantines_and_their_end(deployed: &Deployed) {
    let (_, Outcome::Read { object: before, .. }) = decode_value(&shared("old")) else {
        panic!("the object is valid")
    };
    deployed.cluster.apply(&shared("bad").to_string()).unwrap();
    let one = start(deployed, "istiod-1").await;
    let other = start(deployed, "istiod-2").await;
    let both = async |host: &str| in_force(&one).await == host && in_force(&other).await == host;
    until("both have the edit", async || both("bad").await).await;

    judge(deployed, before.clone()).await;
    until("both serve the version before", async || both("old").await).await;

    // A replica that starts never serves the quarantined version.
    let third = start(deployed, "istiod-3").await;
    assert_eq!(in_force(&third).await, "old");
    assert!(third.stop().await.unwrap());

    // An operator ends the quarantine at one replica, for all.
    let body = json!({ "release": "VirtualService/default/shared" }).to_string();
    let host = other.monitoring.to_string();
    let reply = client::post(other.monitoring, &host, "/debug/quarantine", body.clone())
        .await
        .unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    until("both serve the edit again", async || both("bad").await).await;
    let reply = client::post(other.monitoring, &host, "/debug/quarantine", body)
        .await
        .unwrap();
    assert_eq!(reply.status, 404, "{reply:?}");

    // The next edit ends another quarantine.
    deployed
        .cluster
        .apply(&shared("worse").to_string())
        .unwrap();
    until("both have the edit", async || both("worse").await).await;
    judge(deployed, before).await;
    until("both serve the version before", async || both("old").await).await;
    deployed
        .cluster
        .apply(&shared("mended").to_string())
        .unwrap();
    until("both have the edit", async || both("mended").await).await;
    assert!(one.stop().await.unwrap() && other.stop().await.unwrap());
}
