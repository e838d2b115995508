//! Workloads outside of pods: proxies that connect over TLS with service account tokens are
//! registered as WorkloadEntries.

use std::net::SocketAddr;
use std::path::Path;

use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};
use tonic::Code;

use crate::machines::{Credentials, Machine};
use crate::{Deployed, NAMESPACE, until};

/// A control plane with its TLS port.
struct Replica {
    navarch: Navarch,
    secure: SocketAddr,
}

impl Replica {
    async fn start(deployed: &Deployed, name: &str) -> Self {
        Self::start_with(deployed, name, "3s", "30m").await
    }

    /// Starts one with a grace period for disconnected workloads, and a maximum age of connections.
    async fn start_with(deployed: &Deployed, name: &str, grace: &str, age: &str) -> Self {
        let kubeconfig = deployed
            .cluster
            .kubeconfig_of(NAMESPACE, "istiod")
            .await
            .unwrap();

        let environment = [
            ("POD_NAME", name),
            ("POD_NAMESPACE", NAMESPACE),
            ("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", grace),
        ];
        let age = format!("--keepaliveMaxServerConnectionAge={age}");
        let flags = ["--secure-grpc-addr=127.0.0.1:0", &age];
        let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
        let navarch = Navarch::start_on_kubernetes(program, &kubeconfig, &flags, &environment)
            .await
            .unwrap();
        let secure = navarch.secure();
        Self { navarch, secure }
    }
}

/// A WorkloadEntry; null if it does not exist.
async fn entry(deployed: &Deployed, name: &str) -> Value {
    deployed
        .get(&format!(
            "/apis/networking.istio.io/v1/namespaces/vms/workloadentries/{name}"
        ))
        .await
}

/// The health condition of an entry: status and message.
fn health(entry: &Value) -> Option<(String, String)> {
    let conditions = entry["status"]["conditions"].as_array()?;
    let healthy = conditions
        .iter()
        .find(|condition| condition["type"] == "Healthy")?;
    let text = |member: &str| healthy[member].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("message")))
}

/// The WorkloadGroup, and the configuration of its members.
fn objects() -> [Value; 5] {
    let account = |name: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": "vms" } });
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "vms" } }),
        account("vm"),
        account("other"),
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "WorkloadGroup", "metadata": { "name": "web", "namespace": "vms" },
            "spec": {
                "metadata": { "labels": { "app": "web" } },
                "template": { "serviceAccount": "vm", "ports": { "http": 8080 } },
            },
        }),
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": { "name": "web", "namespace": "vms" },
            "spec": {
                "hosts": ["web.example.com"], "location": "MESH_INTERNAL", "resolution": "STATIC",
                "workloadSelector": { "labels": { "app": "web" } },
                "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
            },
        }),
    ]
}

pub(crate) async fn follows_proxies(deployed: &Deployed) {
    for object in objects() {
        deployed.cluster.apply(&object.to_string()).unwrap();
    }

    let first = Replica::start(deployed, "first").await;
    let folder = tempfile::tempdir().unwrap();
    let map = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/istio-ca-root-cert");
    let root = async || {
        deployed.get(&map).await["data"]["root-cert.pem"]
            .as_str()
            .map(str::to_owned)
    };

    // An earlier control plane's root may still be there.
    let is_pem = |text: Option<String>| {
        text.is_some_and(|text| text.starts_with("-----BEGIN CERTIFICATE-----"))
    };
    until("the roots are written", async || is_pem(root().await)).await;
    std::fs::write(folder.path().join("root.pem"), root().await.unwrap()).unwrap();
    let vm = Credentials::issue(deployed, folder.path(), "vm").await;
    let other = Credentials::issue(deployed, folder.path(), "other").await;
    unauthorized_clients_are_rejected(deployed, &first, &vm, &other).await;

    one_registers_and_moves(deployed, &first, &vm).await;
    an_entry_of_a_user_gets_a_health_condition(deployed, &first, &vm).await;
    assert!(
        first.navarch.stop().await.unwrap(),
        "navarch exits on SIGTERM"
    );
    an_entry_left_by_a_crash_is_deleted(deployed, &vm).await;
    registration_is_disabled_for_files().await;
}

/// Clients that may not register as the entry, or have no group. None of them causes a request to
/// the API server.
async fn unauthorized_clients_are_rejected(
    deployed: &Deployed,
    server: &Replica,
    vm: &Credentials,
    other: &Credentials,
) {
    let group = |name: &str| json!({ "NAMESPACE": "vms", "AUTO_REGISTER_GROUP": name });
    let named = |name: &str| json!({ "NAMESPACE": "vms", "WORKLOAD_ENTRY": name });
    for metadata in [group("web"), group("none"), named("none")] {
        let (code, message) = Machine::rejected(server.navarch.xds, None, &metadata).await;
        assert!(
            code == Code::PermissionDenied && message.contains("authenticated identity"),
            "{code} {message}"
        );
    }

    let mut messages = std::collections::BTreeSet::new();

    for (papers, metadata, name) in [
        (other, group("web"), "vms/web-10.9.0.7"),
        (vm, group("none"), "vms/none-10.9.0.7"),
        (vm, named("none"), "vms/none"),
    ] {
        let (code, message) = Machine::rejected(server.secure, Some(papers), &metadata).await;
        assert!(
            code == Code::PermissionDenied && message.contains(name),
            "{code} {message}"
        );
        messages.insert(message.replace(name, ""));
    }

    assert_eq!(
        messages.len(),
        1,
        "a missing entry gives the same error as another's: {messages:?}"
    );
    let elsewhere = json!({ "NAMESPACE": "bank", "WORKLOAD_ENTRY": "x" });
    let (code, message) = Machine::rejected(server.secure, Some(vm), &elsewhere).await;
    assert_eq!(code, Code::PermissionDenied, "{message}");

    for name in [
        "?limit=0",
        "x?watch=true",
        "../../bank/workloadentries/x",
        "a/b",
        "%2e%2e",
        "x#y",
        "A",
        "x.",
    ] {
        for metadata in [named(name), group(name)] {
            for (address, papers) in [(server.navarch.xds, None), (server.secure, Some(vm))] {
                let (code, message) = Machine::rejected(address, papers, &metadata).await;
                assert_eq!(code, Code::InvalidArgument, "{name}: {message}");
            }
        }
    }

    let requests = deployed.requests("/workloadentries/");
    assert_eq!(
        requests,
        Vec::<String>::new(),
        "none of them caused a lookup"
    );
}

/// A machine registers, reports its health, moves to another control plane, and disconnects.
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn one_registers_and_moves(deployed: &Deployed, first: &Replica, vm: &Credentials) {
    const NAME: &str = "web-10.9.0.7-lan";
    const MARKER: &str = "web-10.9.0.7-marker";
    let metadata = json!({
        "NAMESPACE": "vms", "AUTO_REGISTER_GROUP": "web", "NETWORK": "lan", "LABELS": { "version": "v1" },
        "PROXY_CONFIG": { "readinessProbe": { "periodSeconds": 1, "tcpSocket": { "port": 8080 } } },
    });
    let machine = Machine::open(first.secure, Some(vm), &metadata)
        .await
        .unwrap();

    let found = entry(deployed, NAME).await;
    assert_eq!(
        found["spec"],
        json!({
            "address": "10.9.0.7", "network": "lan", "locality": "north/n1", "serviceAccount": "vm",
            "ports": { "http": 8080 }, "labels": { "app": "web", "version": "v1" },
        })
    );

    let annotation = |entry: &Value, name: &str| {
        entry["metadata"]["annotations"][name]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(
        annotation(&found, "istio.io/autoRegistrationGroup").as_deref(),
        Some("web")
    );

    assert_eq!(
        annotation(&found, "istio.io/workloadController").as_deref(),
        Some("first")
    );
    assert_eq!(found["metadata"]["ownerReferences"][0]["name"], "web");
    let is_served = async || {
        first
            .navarch
            .page("/debug/endpointShardz")
            .await
            .is_ok_and(|page| page.contains("10.9.0.7"))
    };

    machine.report_health(Some("not yet")).await;
    let reported = |status: &str, message: &str| Some((status.to_owned(), message.to_owned()));
    until("it is unhealthy", async || {
        health(&entry(deployed, NAME).await) == reported("False", "not yet")
    })
    .await;
    assert!(!is_served().await, "an unhealthy workload gets no traffic");
    machine.report_health(None).await;

    until("it is healthy", async || {
        health(&entry(deployed, NAME).await) == reported("True", "")
    })
    .await;
    until("it gets traffic", &is_served).await;

    let second = Replica::start(deployed, "second").await;
    let moved = Machine::open(second.secure, Some(vm), &metadata)
        .await
        .unwrap();
    machine.close().await;

    // Another machine disconnects after it and does not return: its grace period ends later, so its
    // deletion shows that the first would have been deleted.
    let metadata_of_marker =
        json!({ "NAMESPACE": "vms", "AUTO_REGISTER_GROUP": "web", "NETWORK": "marker" });
    let marker = Machine::open(first.secure, Some(vm), &metadata_of_marker)
        .await
        .unwrap();
    assert!(!entry(deployed, MARKER).await.is_null(), "it is registered");
    marker.close().await;

    until("the grace of the later one is over", async || {
        entry(deployed, MARKER).await.is_null()
    })
    .await;
    let found = entry(deployed, NAME).await;
    assert_eq!(
        annotation(&found, "istio.io/workloadController").as_deref(),
        Some("second"),
        "{found}"
    );

    assert_eq!(
        annotation(&found, "istio.io/disconnectedAt"),
        None,
        "the entry was kept during the move"
    );

    // A stopping control plane marks its workloads as disconnected; a workload that returns in time
    // keeps its entry.
    let uid = found["metadata"]["uid"].clone();
    let ended = tokio::spawn(second.navarch.stop());
    drop(moved);
    assert!(ended.await.unwrap().unwrap(), "navarch exits on SIGTERM");
    let found = entry(deployed, NAME).await;
    assert!(
        annotation(&found, "istio.io/disconnectedAt").is_some(),
        "{found}"
    );

    let back = Machine::open(first.secure, Some(vm), &metadata)
        .await
        .unwrap();
    let found = entry(deployed, NAME).await;
    assert_eq!(
        (
            &found["metadata"]["uid"],
            annotation(&found, "istio.io/disconnectedAt")
        ),
        (&uid, None)
    );

    back.close().await;
    until("its grace is over", async || {
        entry(deployed, NAME).await.is_null()
    })
    .await;
    until("no request is sent there", async || !is_served().await).await;
    let metrics = first.navarch.metrics().await.unwrap();

    for counted in [
        "auto_registration_success_total 2",
        "auto_registration_deletes_total 2",
    ] {
        assert!(metrics.contains(counted), "{counted}: {metrics}");
    }
}

/// A control plane that crashes together with the machine leaves an entry that is still marked as
/// connected; other replicas delete it once no connection can be that old.
async fn an_entry_left_by_a_crash_is_deleted(deployed: &Deployed, vm: &Credentials) {
    const NAME: &str = "web-10.9.0.7-lan";
    let metadata = json!({ "NAMESPACE": "vms", "AUTO_REGISTER_GROUP": "web", "NETWORK": "lan" });
    let crashing = Replica::start(deployed, "crashing").await;
    let machine = Machine::open(crashing.secure, Some(vm), &metadata)
        .await
        .unwrap();
    crashing.navarch.kill().unwrap();
    drop((machine, crashing));

    let left = entry(deployed, NAME).await;
    let annotations = &left["metadata"]["annotations"];
    assert_eq!(
        annotations["istio.io/workloadController"], "crashing",
        "{left}"
    );
    assert!(
        annotations["istio.io/connectedAt"].is_string()
            && annotations["istio.io/disconnectedAt"].is_null(),
        "{left}"
    );

    // Another entry was left and is marked as disconnected. Entries are cleaned up in the order of
    // their names.
    let mut gone = left.clone();
    gone["metadata"] = json!({
        "name": "zz-gone", "namespace": "vms", "labels": left["metadata"]["labels"],
        "annotations": left["metadata"]["annotations"],
    });
    let begun = gone["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("istio.io/connectedAt")
        .unwrap();
    gone["metadata"]["annotations"]["istio.io/disconnectedAt"] = begun;

    deployed.cluster.apply(&gone.to_string()).unwrap();
    let patient = Replica::start_with(deployed, "patient", "200ms", "30m").await;
    until("entries are cleaned up", async || {
        entry(deployed, "zz-gone").await.is_null()
    })
    .await;
    assert_eq!(
        entry(deployed, NAME).await["metadata"]["uid"],
        left["metadata"]["uid"],
        "the machine may still be connected"
    );

    let _strict = Replica::start_with(deployed, "strict", "200ms", "2s").await;
    until("the entry is deleted", async || {
        entry(deployed, NAME).await.is_null()
    })
    .await;
    drop(patient);
}

/// An entry created by a user is kept; only its health condition is removed.
async fn an_entry_of_a_user_gets_a_health_condition(
    deployed: &Deployed,
    server: &Replica,
    vm: &Credentials,
) {
    let written = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry",
        "metadata": {
            "name": "mine", "namespace": "vms",
            "annotations": { "proxy.istio.io/health-checks-enabled": "true" },
        },
        "spec": { "address": "10.9.0.7", "serviceAccount": "vm" },
    });

    deployed.cluster.apply(&written.to_string()).unwrap();
    until("its health is known", async || {
        server
            .navarch
            .page("/debug/configz")
            .await
            .is_ok_and(|page| page.contains("mine"))
    })
    .await;
    let metadata = json!({ "NAMESPACE": "vms", "WORKLOAD_ENTRY": "mine" });
    let machine = Machine::open(server.secure, Some(vm), &metadata)
        .await
        .unwrap();
    machine.report_health(None).await;
    until("it is healthy", async || {
        health(&entry(deployed, "mine").await).is_some_and(|reported| reported.0 == "True")
    })
    .await;
    machine.close().await;
    until("its health is unknown", async || {
        health(&entry(deployed, "mine").await).is_none()
    })
    .await;
    assert_eq!(entry(deployed, "mine").await["spec"], written["spec"]);
}

/// Without an API server as configuration source, registration is disabled.
async fn registration_is_disabled_for_files() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let navarch = Navarch::start(program, folder.path(), &[]).await.unwrap();
    let metadata = json!({ "NAMESPACE": "vms", "AUTO_REGISTER_GROUP": "web" });
    let (code, message) = Machine::rejected(navarch.xds, None, &metadata).await;
    assert!(
        code == Code::FailedPrecondition && message.contains("files"),
        "{code} {message}"
    );
}
