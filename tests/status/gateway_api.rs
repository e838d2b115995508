//! Statuses of Gateway API objects.

use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use navarch::status::{
    DesiredStatus, DesiredStatuses, ObjectStatuses, Responsibility, RevisionObjects, StatusScope,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, NAMESPACE, quarantine, until};

/// The path of the route.
const PATH: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/r";

/// A CRD of HTTPRoute that accepts any content.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "httproutes.gateway.networking.k8s.io",
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
        },
        "spec": {
            "group": "gateway.networking.k8s.io",
            "scope": "Namespaced",
            "names": { "kind": "HTTPRoute", "listKind": "HTTPRouteList", "plural": "httproutes", "singular": "httproute" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// The desired status of the route.
fn wanted(accepted: &str) -> DesiredStatuses {
    let status = json!({ "parents": [{
        "parentRef": { "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web" },
        "controllerName": "istio.io/gateway-controller",
        "conditions": [{ "type": "Accepted", "status": accepted, "reason": "R", "message": "m", "observedGeneration": 1 }],
    }] });
    let object = ObjectRef {
        kind: Kind::HttpRoute,
        name: NamespacedName::new("default", "r"),
    };
    DesiredStatuses::unit(object, DesiredStatus::from(status.to_string()))
}

/// The entries of the route's status, as `controller=accepted`.
async fn entries(deployed: &Deployed) -> Vec<String> {
    let route = deployed.get(PATH).await;
    let entries = route
        .pointer("/status/parents")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| {
            format!(
                "{}={}",
                text(&entry["controllerName"]),
                text(&entry["conditions"][0]["status"])
            )
        })
        .collect()
}

pub(crate) async fn is_written_next_to_that_of_other_controllers_and_repaired(deployed: &Deployed) {
    deployed.cluster.apply(&definition().to_string()).unwrap();
    let wait = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd/httproutes.gateway.networking.k8s.io",
    ];

    deployed.cluster.kubectl(&wait, "").unwrap();
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": "r", "namespace": "default" }, "spec": {},
    });
    deployed.cluster.apply(&route.to_string()).unwrap();
    let theirs = json!({ "controllerName": "example.com/theirs", "parentRef": { "name": "theirs" },
        "conditions": [{ "type": "Accepted", "status": "Unknown" }] });

    let patch = async |status: Value| {
        let path = format!("{PATH}/status");
        deployed
            .cluster
            .call(
                "PATCH",
                &path,
                "application/merge-patch+json",
                &json!({ "status": status }),
            )
            .await
            .unwrap();
    };

    patch(json!({ "parents": [theirs] })).await;

    let (tell, desired) = watch::channel(DesiredStatuses::new());
    let stop = CancellationToken::new();
    let task = writes(deployed, desired, Responsibility::All, &stop).await;
    tell.send_replace(wanted("False"));
    let first = [
        "example.com/theirs=Unknown",
        "istio.io/gateway-controller=False",
    ];

    until("both entries are in the status", async || {
        entries(deployed).await == first
    })
    .await;
    tell.send_replace(wanted("True"));
    let second = [
        "example.com/theirs=Unknown",
        "istio.io/gateway-controller=True",
    ];
    until("it follows", async || entries(deployed).await == second).await;

    let version = deployed.get(PATH).await["metadata"]["resourceVersion"].clone();
    tell.send_replace(wanted("True"));
    patch(json!({ "parents": [theirs] })).await;
    until("a removed entry is written again", async || {
        entries(deployed).await == second
    })
    .await;
    let seen = deployed.get(PATH).await["metadata"]["resourceVersion"].clone();
    assert_ne!(version, seen);

    stop.cancel();
    task.await.unwrap();
    quarantine::a_quarantined_route_gets_its_condition_once_it_has_a_parent(deployed).await;
    is_written_by_its_revision_alone(deployed).await;
    deployed
        .cluster
        .kubectl(
            &["delete", "crd", "httproutes.gateway.networking.k8s.io"],
            "",
        )
        .unwrap();
}

/// Starts the status writer.
async fn writes(
    deployed: &Deployed,
    wanted: watch::Receiver<DesiredStatuses>,
    responsibility: Responsibility,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let controllers = vec!["istio.io/gateway-controller".to_owned()];
    let cluster = deployed.as_navarch().await;
    let writer = ObjectStatuses {
        cluster,
        wanted,
        controllers,
        scope: StatusScope::Whole,
        responsibility,
        deploys_gateways: true,
    };
    tokio::spawn(writer.run(stop.clone()))
}

/// Two revisions have different statuses for the route, but only the route's own revision writes.
async fn is_written_by_its_revision_alone(deployed: &Deployed) {
    let stop = CancellationToken::new();
    let mut tasks = Vec::new();
    let mut tells = Vec::new();

    for (revision, accepted) in [("default", "False"), ("canary", "Unknown")] {
        let (tell_own, own) = watch::channel(None);
        let cluster = deployed.as_navarch().await;
        let namespace = NAMESPACE.to_owned();
        let follow = RevisionObjects {
            cluster,
            namespace,
            revision: revision.to_owned(),
        };
        tasks.push(tokio::spawn(follow.run(tell_own, stop.clone())));
        let (tell, desired) = watch::channel(wanted(accepted));
        tells.push(tell);
        tasks.push(writes(deployed, desired, Responsibility::Revision(own), &stop).await);
    }

    let says = async |accepted: &str| {
        entries(deployed)
            .await
            .contains(&format!("istio.io/gateway-controller={accepted}"))
    };

    let label = |label: &str| {
        deployed
            .cluster
            .kubectl(
                &[
                    "label",
                    "--overwrite",
                    "httproute",
                    "r",
                    "-n",
                    "default",
                    label,
                ],
                "",
            )
            .unwrap();
    };

    until(
        "the default revision writes to routes without a revision",
        async || says("False").await,
    )
    .await;
    let before = deployed.requests("/httproutes/r/status?").len();
    label("istio.io/rev=canary");
    until("its own revision writes the status", async || {
        says("Unknown").await
    })
    .await;

    // First an unknown tag, which is then assigned to one revision after the other.
    label("istio.io/rev=next");
    let tag = |revision: &str| {
        let labels = json!({ "istio.io/rev": revision, "istio.io/tag": "next" });
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "istiod-revision-tag-next", "namespace": NAMESPACE, "labels": labels },
            "spec": { "ports": [{ "name": "grpc", "port": 15012 }] },
        });
        deployed.cluster.apply(&service.to_string()).unwrap();
    };

    for (revision, accepted) in [("default", "False"), ("canary", "Unknown")] {
        tag(revision);
        until("the revision of its tag writes the status", async || {
            says(accepted).await
        })
        .await;
    }

    let writes = deployed.requests("/httproutes/r/status?").len() - before;
    assert!(
        writes <= 4,
        "{writes} writes, but only three statuses differed, and one more write may have been late"
    );
    stop.cancel();
    for task in tasks {
        task.await.unwrap();
    }

    deployed
        .cluster
        .kubectl(
            &[
                "delete",
                "service",
                "istiod-revision-tag-next",
                "-n",
                NAMESPACE,
            ],
            "",
        )
        .unwrap();
}
