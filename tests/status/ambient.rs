//! Conditions about ambient mode, on built-in objects and on Istio's.

use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use navarch::status::{
    DesiredStatus, DesiredStatuses, ObjectStatuses, Responsibility, StatusScope,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, until};

/// The paths of the Service and the policy.
const PATHS: [(Kind, &str); 2] = [
    (Kind::Service, "/api/v1/namespaces/default/services/behind"),
    (
        Kind::AuthorizationPolicy,
        "/apis/security.istio.io/v1/namespaces/default/authorizationpolicies/behind",
    ),
];

/// The desired conditions of both: one with this status, or none.
fn wanted(status: Option<&str>) -> DesiredStatuses {
    let one = |kind| {
        let mut condition = json!({ "type": "istio.io/WaypointBound", "status": status, "reason": "R", "message": "m" });
        if kind != Kind::Service {
            // It is a string in Istio's conditions; a Service's has none.
            condition["observedGeneration"] = json!("1");
        }
        let status = match status {
            Some(_) => json!({ "conditions": [condition], "withoutConditions": [] }),
            None => json!({ "conditions": [], "withoutConditions": ["istio.io/WaypointBound"] }),
        };
        let object = ObjectRef {
            kind,
            name: NamespacedName::new("default", "behind"),
        };
        (object, DesiredStatus::from(status.to_string()))
    };
    PATHS.into_iter().map(|(kind, _)| one(kind)).collect()
}

/// The conditions of both, as `type=status`.
async fn conditions(deployed: &Deployed) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (_, path) in PATHS {
        let object = deployed.get(path).await;
        let conditions = object
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.push(
            conditions
                .iter()
                .map(|one| format!("{}={}", text(&one["type"]), text(&one["status"])))
                .collect(),
        );
    }
    all
}

pub(crate) async fn conditions_coexist_with_others_and_are_removed(deployed: &Deployed) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "behind", "namespace": "default" },
        "spec": { "type": "LoadBalancer", "ports": [{ "name": "http", "port": 80 }] },
    });
    let policy = json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": { "name": "behind", "namespace": "default" }, "spec": { "rules": [{}] },
    });

    deployed.cluster.apply(&service.to_string()).unwrap();
    deployed.cluster.apply(&policy.to_string()).unwrap();
    let theirs = json!({ "type": "Theirs", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = |kind: Kind| {
        let mut status = json!({ "conditions": [theirs] });
        if kind == Kind::Service {
            status["loadBalancer"] = json!({ "ingress": [{ "ip": "192.0.2.1" }] });
        }
        status
    };

    for (kind, path) in PATHS {
        let patch = json!({ "status": status(kind) });
        let path = format!("{path}/status");
        deployed
            .cluster
            .call("PATCH", &path, "application/merge-patch+json", &patch)
            .await
            .unwrap();
    }

    let (tell, desired) = watch::channel(DesiredStatuses::new());
    let stop = CancellationToken::new();
    let cluster = deployed.as_navarch().await;
    let controllers = Vec::new();
    let responsibility = Responsibility::All;
    let writer = ObjectStatuses {
        cluster,
        wanted: desired,
        controllers,
        scope: StatusScope::Wanted,
        responsibility,
        deploys_gateways: false,
    };

    let task = tokio::spawn(writer.run(stop.clone()));
    let both = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
        vec![list.clone(), list]
    };
    tell.send_replace(wanted(Some("False")));
    let first = both(&["Theirs=True", "istio.io/WaypointBound=False"]);
    until("both have the condition", async || {
        conditions(deployed).await == first
    })
    .await;
    tell.send_replace(wanted(Some("True")));
    let second = both(&["Theirs=True", "istio.io/WaypointBound=True"]);
    until("it follows", async || conditions(deployed).await == second).await;

    let version =
        async |path: &str| deployed.get(path).await["metadata"]["resourceVersion"].clone();
    let before = (version(PATHS[0].1).await, version(PATHS[1].1).await);
    tell.send_replace(wanted(Some("True")));

    // A condition that another client removes is written again. By then, a write for the other
    // object, whose conditions are equal, would have happened, too.
    let patch = json!({ "status": { "conditions": [theirs] } });
    let path = format!("{}/status", PATHS[1].1);
    deployed
        .cluster
        .call("PATCH", &path, "application/merge-patch+json", &patch)
        .await
        .unwrap();

    until("the condition is written again", async || {
        conditions(deployed).await == second
    })
    .await;
    assert_eq!(
        version(PATHS[0].1).await,
        before.0,
        "equal conditions are not written"
    );

    assert_ne!(version(PATHS[1].1).await, before.1);

    tell.send_replace(wanted(None));
    until("it goes", async || {
        conditions(deployed).await == both(&["Theirs=True"])
    })
    .await;
    let service = deployed.get(PATHS[0].1).await;
    assert_eq!(
        service["status"]["loadBalancer"]["ingress"][0]["ip"],
        "192.0.2.1"
    );

    stop.cancel();
    task.await.unwrap();

    for (kind, name) in [("service", "behind"), ("authorizationpolicy", "behind")] {
        deployed
            .cluster
            .kubectl(&["delete", kind, name, "-n", "default"], "")
            .unwrap();
    }
}

/// The conditions that a control plane in ambient mode writes to a Service that names a missing
/// waypoint, and to a policy for ztunnel.
pub(crate) async fn are_written_by_the_leader(deployed: &Deployed) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "behind", "namespace": "default", "labels": { "istio.io/use-waypoint": "gone" } },
        "spec": { "ports": [{ "name": "http", "port": 80 }] },
    });

    let policy = json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": { "name": "behind", "namespace": "default" },
        "spec": { "rules": [{ "to": [{ "operation": { "methods": ["GET"] } }] }] },
    });
    deployed.cluster.apply(&service.to_string()).unwrap();
    deployed.cluster.apply(&policy.to_string()).unwrap();
    let expected = vec![
        vec!["istio.io/WaypointBound=False".to_owned()],
        vec!["ZtunnelAccepted=True".to_owned()],
    ];

    let own = async || {
        let mut all = conditions(deployed).await;
        // The number of proxies that have acknowledged the policy is reported, too.
        all.iter_mut()
            .for_each(|list| list.retain(|one| !one.starts_with("Reconciled=")));
        all
    };

    until("both have the condition", async || own().await == expected).await;
    let service = deployed.get(PATHS[0].1).await;
    assert_eq!(
        service["status"]["conditions"][0]["reason"],
        "WaypointIsNotReady"
    );
    let policy = deployed.get(PATHS[1].1).await;
    let conditions = policy["status"]["conditions"].as_array().unwrap();
    let accepted = conditions
        .iter()
        .find(|condition| condition["type"] == "ZtunnelAccepted")
        .unwrap();

    assert_eq!(
        (&accepted["reason"], &accepted["observedGeneration"]),
        (&json!("UnsupportedValue"), &json!("1"))
    );
    deployed
        .cluster
        .kubectl(
            &[
                "label",
                "service",
                "behind",
                "-n",
                "default",
                "istio.io/use-waypoint-",
            ],
            "",
        )
        .unwrap();

    until(
        "an object without a waypoint gets no condition",
        async || own().await[0].is_empty(),
    )
    .await;

    for kind in ["service", "authorizationpolicy"] {
        deployed
            .cluster
            .kubectl(&["delete", kind, "behind", "-n", "default"], "")
            .unwrap();
    }
}
