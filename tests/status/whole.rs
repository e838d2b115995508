//! `navarch discovery` as deployed: two replicas, with only the rights of deploy/.

use std::path::Path;

use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use crate::{Deployed, NAMESPACE, ambient, until};

/// The holder of a lock.
async fn leader(deployed: &Deployed, lock: &str) -> Value {
    if lock == "istio-status-leader" {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lock}");
        return deployed.get(&path).await["spec"]["holderIdentity"].clone();
    }
    let map = deployed
        .get(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{lock}"))
        .await;
    let record =
        map["metadata"]["annotations"]["control-plane.alpha.kubernetes.io/leader"].as_str();
    let record: Value = serde_json::from_str(record.unwrap_or("{}")).unwrap();
    record["holderIdentity"].clone()
}

async fn roots(deployed: &Deployed, namespace: &str) -> Value {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/istio-ca-root-cert");
    deployed.get(&path).await["data"]["root-cert.pem"].clone()
}

/// Starts a replica.
pub(crate) async fn start(deployed: &Deployed, name: &str) -> Navarch {
    let kubeconfig = deployed
        .cluster
        .kubeconfig_of(NAMESPACE, "istiod")
        .await
        .unwrap();
    let environment = [
        ("POD_NAME", name),
        ("POD_NAMESPACE", NAMESPACE),
        ("PILOT_ENABLE_ANALYSIS", "true"),
        ("PILOT_ENABLE_STATUS", "true"),
        ("PILOT_ENABLE_AMBIENT", "true"),
    ];
    let arguments = ["--secure-grpc-addr=127.0.0.1:0"];
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    Navarch::start_on_kubernetes(program, &kubeconfig, &arguments, &environment)
        .await
        .unwrap()
}

/// The gateway's address becomes the status of the Ingresses that it serves, and of no others.
async fn updates_ingress_status(deployed: &Deployed, address: &str) {
    let class = |name: &str, controller: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": name },
            "spec": { "controller": controller },
        })
    };

    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "istio-ingressgateway", "namespace": NAMESPACE },
        "spec": { "type": "LoadBalancer", "ports": [{ "name": "http", "port": 80 }] },
    });
    let ingress = |name: &str, class: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "ingressClassName": class,
                "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } },
            },
        })
    };

    let objects = [
        class("ours", "istio.io/ingress-controller"),
        class("theirs", "example.com/other"),
        service,
        ingress("ours", "ours"),
        ingress("theirs", "theirs"),
    ];

    for object in &objects {
        deployed.cluster.apply(&object.to_string()).unwrap();
    }

    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }, { "hostname": "lb.example.com" }] } } });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/services/istio-ingressgateway/status");
    deployed
        .cluster
        .call("PATCH", &path, "application/merge-patch+json", &status)
        .await
        .unwrap();
    let path =
        |name: &str| format!("/apis/networking.k8s.io/v1/namespaces/default/ingresses/{name}");

    let reported =
        async || deployed.get(&path("ours")).await["status"]["loadBalancer"]["ingress"].clone();
    let wanted = json!([{ "ip": address }, { "hostname": "lb.example.com" }]);
    until("the Ingress has its address", async || {
        reported().await == wanted
    })
    .await;
    assert_eq!(
        deployed.get(&path("theirs")).await["status"]["loadBalancer"]["ingress"],
        Value::Null
    );
}

pub(crate) async fn replicas_write_in_turn_and_serve_the_same(deployed: &Deployed) {
    const LOCKS: [&str; 5] = [
        "istio-namespace-controller-election",
        "istio-ip-autoallocate",
        "istio-analyze-leader",
        "istio-status-leader",
        "istio-leader",
    ];

    let first = start(deployed, "first").await;

    for lock in LOCKS {
        until("the first leads", async || {
            leader(deployed, lock).await == "first"
        })
        .await;
    }

    let second = start(deployed, "second").await;
    let is_pem = |text: &Value| {
        text.as_str()
            .is_some_and(|text| text.starts_with("-----BEGIN CERTIFICATE-----"))
    };
    until("its roots are written", async || {
        is_pem(&roots(deployed, "kube-system").await)
    })
    .await;
    let root = roots(deployed, "kube-system").await;

    let entry = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": { "name": "whole", "namespace": "default" },
        "spec": {
            "hosts": ["whole.example.com"], "resolution": "STATIC",
            "endpoints": [{ "address": "192.0.2.7" }],
            "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
        },
    });

    deployed.cluster.apply(&entry.to_string()).unwrap();
    ambient::are_written_by_the_leader(deployed).await;
    let path = "/apis/networking.istio.io/v1/namespaces/default/serviceentries/whole";
    until("it has addresses", async || {
        deployed.get(path).await["status"]["addresses"][0]["value"].is_string()
    })
    .await;
    let address = deployed.get(path).await["status"]["addresses"][0]["value"]
        .as_str()
        .unwrap()
        .to_owned();

    for replica in [&first, &second] {
        until("the address is served", async || {
            replica
                .page("/debug/registryz")
                .await
                .is_ok_and(|page| page.contains(&address))
        })
        .await;
    }

    updates_ingress_status(deployed, "192.0.2.1").await;

    assert!(first.stop().await.unwrap(), "navarch exits on SIGTERM");

    for lock in LOCKS {
        until("the second takes over", async || {
            leader(deployed, lock).await == "second"
        })
        .await;
    }

    updates_ingress_status(deployed, "192.0.2.2").await;

    // Both use the same CA: the second replica does not rewrite the first one's ConfigMaps.
    assert_eq!(roots(deployed, "kube-system").await, root);
    let map = "/api/v1/namespaces/default/configmaps/istio-ca-root-cert";
    deployed
        .cluster
        .call("DELETE", map, "application/json", &Value::Null)
        .await
        .unwrap();

    until("the second keeps the roots", async || {
        roots(deployed, "default").await == root
    })
    .await;
    assert!(second.stop().await.unwrap(), "navarch exits on SIGTERM");
}
