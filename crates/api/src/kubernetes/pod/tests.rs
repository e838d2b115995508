use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;

fn pod(spec: Value, status: Value) -> Result<Pod, FieldError> {
    let object = json!({ "metadata": { "name": "web-1" }, "spec": spec, "status": status });
    let object: wire::Pod = serde_json::from_value(object).unwrap();
    Object::<Pod>::try_from(object).map(|object| object.spec)
}

#[test]
fn an_empty_pod_is_pending_under_the_default_account() {
    let pod = pod(json!({ "containers": [] }), json!({})).unwrap();
    assert_eq!(pod.service_account, ServiceAccount::new("default"));
    assert_eq!((pod.phase, pod.ready), (PodPhase::Pending, false));
}

#[test]
fn the_former_names_of_fields_are_read() {
    let pod = pod(
        json!({ "serviceAccount": "old", "containers": [] }),
        json!({ "podIP": "10.0.0.9" }),
    )
    .unwrap();
    assert_eq!(pod.service_account, ServiceAccount::new("old"));
    assert_eq!(*pod.pod_ips, ["10.0.0.9".parse::<IpAddr>().unwrap()]);
}

#[test]
fn ports_of_sidecars_come_after_those_of_containers() {
    let spec = json!({
        "initContainers": [
            { "name": "once", "ports": [{ "containerPort": 1, "name": "once" }] },
            { "name": "proxy", "restartPolicy": "Always", "ports": [{ "containerPort": 2, "name": "http" }] },
        ],
        "containers": [{ "name": "app", "ports": [
            { "containerPort": 3, "name": "http", "protocol": "UDP" },
            { "containerPort": 4, "name": "http" },
        ] }],
    });

    let pod = pod(spec, json!({})).unwrap();
    assert_eq!(
        pod.ports.iter().map(|port| port.port).collect::<Vec<_>>(),
        [3, 4, 2]
    );
    let http = PortName::new("http");
    assert_eq!(pod.port_named(&http, Protocol::Tcp), Some(4));
    assert_eq!(pod.port_named(&http, Protocol::Udp), Some(3));

    assert_eq!(pod.port_named(&PortName::new("once"), Protocol::Tcp), None);
}

#[test]
fn ready_is_the_condition_and_not_the_phase() {
    let status = |status| json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] });
    assert!(
        pod(json!({ "containers": [] }), status("True"))
            .unwrap()
            .ready
    );
    assert!(
        !pod(json!({ "containers": [] }), status("False"))
            .unwrap()
            .ready
    );
}

#[test]
fn errors_name_the_field() {
    let bad = json!({ "containers": [{ "name": "a", "ports": [{ "containerPort": 0 }] }] });
    assert_eq!(
        pod(bad, json!({})).unwrap_err().path,
        "spec.containers[0].ports[0].containerPort"
    );
    let error = pod(
        json!({ "containers": [] }),
        json!({ "podIPs": [{ "ip": "x" }] }),
    )
    .unwrap_err();
    assert_eq!(error.path, "status.podIPs[0]");
    assert_eq!(
        pod(json!({ "containers": [] }), json!({ "phase": "Odd" }))
            .unwrap_err()
            .path,
        "status.phase"
    );
}
