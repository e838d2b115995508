//! A mesh from an API server: recorded during edits, replayed without an API server.

use std::path::Path;

use navarch_testkit::cluster::Cluster;
use navarch_testkit::navarch::Navarch;
use serde_json::json;

use crate::proxy::Reaction;
use crate::{program, record_contains, replayed, sidecars, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_mesh_of_an_api_server_is_replayed_identically() {
    let cluster = Cluster::start().await.unwrap();
    cluster
        .apply_crds(Path::new(env!("CARGO_MANIFEST_DIR")))
        .unwrap();
    let writer = cluster.writer().await.unwrap();
    let meta =
        |name: &str| json!({ "name": name, "namespace": "bookshop", "labels": { "app": name } });
    let service = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": meta(name), "spec": {
            "selector": { "app": name }, "ports": [{ "name": "http", "port": 9080 }] } })
    };

    let slice = |ip: &str| {
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "reviews-1", "namespace": "bookshop", "labels": { "kubernetes.io/service-name": "reviews" } },
            "endpoints": [{ "addresses": [ip], "conditions": { "ready": true } }],
            "ports": [{ "name": "http", "port": 9080, "protocol": "TCP" }] })
    };

    let routes = |weight: u32| {
        let to =
            |host: &str, weight: u32| json!({ "destination": { "host": host }, "weight": weight });
        json!({ "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": meta("reviews"), "spec": {
            "hosts": ["reviews"], "http": [{ "route": [to("reviews", weight), to("catalog", 100 - weight)] }] } })
    };

    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": meta("login"), "stringData": { "password": "hunter2hunter2" } });

    for object in [
        service("reviews"),
        service("catalog"),
        slice("10.9.0.1"),
        routes(100),
        secret,
    ] {
        writer.put(&object).await.unwrap();
    }

    let record = tempfile::tempdir().unwrap();
    let flag = format!("--record={}", record.path().display());
    let navarch = Navarch::start_on_kubernetes(
        program(),
        &cluster.admin_kubeconfig(),
        &[flag.as_str()],
        &[],
    )
    .await
    .unwrap();
    let _proxies = sidecars(&navarch, &[Reaction::Accept, Reaction::Accept]).await;
    record_contains(record.path(), "{\"took\":", 3).await;

    for weight in [90, 80] {
        writer.put(&routes(weight)).await.unwrap();
        record_contains(record.path(), &format!("\"weight\":{weight}"), 1).await;
    }

    writer.put(&slice("10.9.0.2")).await.unwrap();
    record_contains(record.path(), "10.9.0.2", 1).await;
    writer.delete(&routes(80)).await.unwrap();
    record_contains(record.path(), "{\"removed\":", 1).await;
    assert!(navarch.stop().await.unwrap());
    let written = text(record.path());
    for hidden in ["hunter2", "aHVudGVyMmh1bnRlcjI"] {
        assert!(!written.contains(hidden), "{hidden}");
    }

    let (all, code) = replayed(record.path());
    assert_eq!(
        (code, &all["same"]),
        (0, &true.into()),
        "{} {}",
        all["broken"],
        all["steps"].as_array().unwrap().last().unwrap()
    );

    let words = all["steps"].to_string();

    for wanted in [
        "VirtualService bookshop/reviews (generation 2)",
        "EndpointSlice bookshop/reviews-1",
        "VirtualService bookshop/reviews (gone)",
    ] {
        assert!(words.contains(wanted), "{wanted} in {words}");
    }
}
