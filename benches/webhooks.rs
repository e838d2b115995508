//! The cost of a webhook response without the network: valid and invalid objects of several kinds,
//! alone and beside 200 VirtualServices, and pods; then throughput and the 99th percentile over
//! HTTPS.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "the macros of criterion generate functions without docs"
)]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench may read the clock, spawn and print"
)]

mod https;

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use navarch::api::mesh::MeshConfig;
use navarch::store::Objects;
use navarch::webhook::inject::{Injector, InjectorInputs};
use navarch::webhook::verdict::validate;
use navarch::webhook::{inject_review, validate_review};
use navarch_tests::any_certificate;
use serde_json::{Value, json};

/// The server's allocator, which is part of the cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn review(object: &Value) -> Vec<u8> {
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "shop", "object": object,
        "userInfo": { "username": "admin", "groups": ["system:masters", "system:authenticated"] }, "oldObject": null,
    });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
        .to_string()
        .into_bytes()
}

/// A VirtualService with five routes.
fn virtual_service(name: &str, host: &str) -> Value {
    let routes = (0..5).map(|index| {
        let matches = json!([{ "uri": { "prefix": format!("/{index}") }, "headers": { "x-user": { "exact": "a" } } }]);
        let route = json!([{ "destination": { "host": host, "subset": "v1", "port": { "number": 80 } }, "weight": 90 },
            { "destination": { "host": host, "subset": "v2" }, "weight": 10 }]);
        json!({ "name": format!("r{index}"), "match": matches, "route": route, "timeout": "5s", "retries": { "attempts": 3, "perTryTimeout": "2s" } })
    });
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": { "name": name, "namespace": "shop" },
        "spec": { "hosts": [host], "gateways": ["mesh"], "http": routes.collect::<Vec<_>>() },
    })
}

/// A DestinationRule with two subsets.
fn destination_rule() -> Value {
    let policy = json!({ "loadBalancer": { "simple": "LEAST_REQUEST" }, "connectionPool": { "tcp": { "maxConnections": 9 } },
        "outlierDetection": { "consecutive5xxErrors": 5, "interval": "10s" } });
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": { "name": "d", "namespace": "shop" },
        "spec": { "host": "reviews", "trafficPolicy": policy, "subsets": [
            { "name": "v1", "labels": { "version": "v1" } }, { "name": "v2", "labels": { "version": "v2" } }] },
    })
}

/// A pod with a number of containers, each with a number of variables.
fn pod(containers: usize, variables: usize) -> Value {
    let env = (0..variables)
        .map(|index| json!({ "name": format!("V{index}"), "value": "x" }))
        .collect::<Vec<_>>();
    let all = (0..containers).map(|index| {
        json!({ "name": format!("c{index}"), "image": "i", "env": env, "ports": [{ "containerPort": 8000 + index }] })
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "shop", "labels": { "app": "p" } },
        "spec": { "serviceAccountName": "default", "containers": all.collect::<Vec<_>>() },
    })
}

/// `/validate`.
fn validation(c: &mut Criterion) {
    let mut objects = Objects::default();

    for index in 0..200 {
        let other = validate(&virtual_service(
            &format!("o{index}"),
            &format!("host{index}"),
        ));
        objects.put_any(other.object.expect("the object can be decoded"));
    }

    let broken = virtual_service("v", "bad_host!");
    let bodies = [
        ("VirtualService", review(&virtual_service("v", "reviews"))),
        ("broken VirtualService", review(&broken)),
        ("DestinationRule", review(&destination_rule())),
    ];
    let mut group = c.benchmark_group("validation");
    group.throughput(Throughput::Elements(1));

    for (name, body) in &bodies {
        group.bench_function(*name, |b| b.iter(|| validate_review(black_box(body), None)));
        group.bench_function(format!("{name} beside 200"), |b| {
            b.iter(|| validate_review(black_box(body), Some(&objects)))
        });
    }
}

/// `/inject`.
fn injection(c: &mut Criterion) {
    let injector = Injector::new(&InjectorInputs::new(Arc::new(MeshConfig::istio_defaults())))
        .expect("the default configuration is valid");
    let mut group = c.benchmark_group("injection");
    group.throughput(Throughput::Elements(1));
    for (name, containers, variables) in [
        ("1 container", 1, 0),
        ("20 containers", 20, 0),
        ("200 variables", 1, 200),
    ] {
        let body = review(&pod(containers, variables));
        group.bench_function(name, |b| {
            b.iter(|| inject_review(black_box(&body), "/inject", &injector, None))
        });
    }
}

/// `/validate` and `/inject` over HTTPS on 16 connections; the client's cost is included.
fn over_https(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let port = runtime
        .block_on(https::Port::start())
        .expect("Navarch starts");

    let bodies = [
        (
            "validation",
            "/validate",
            Bytes::from(review(&virtual_service("v", "reviews"))),
        ),
        (
            "injection, 1 container",
            "/inject",
            Bytes::from(review(&pod(1, 0))),
        ),
        (
            "injection, 20 containers",
            "/inject",
            Bytes::from(review(&pod(20, 0))),
        ),
        (
            "injection, 200 variables",
            "/inject",
            Bytes::from(review(&pod(1, 200))),
        ),
    ];

    let mut group = c.benchmark_group("over HTTPS");
    group.throughput(Throughput::Elements(1));

    for (name, path, body) in &bodies {
        let answer = if *path == "/inject" {
            "patch"
        } else {
            r#""allowed":true"#
        };
        runtime.block_on(port.wait_for(path, body, answer));
        group.bench_function(*name, |b| {
            b.iter_custom(|times| runtime.block_on(port.ask(path, body, times)))
        });
        let (half, most) = port.percentiles();
        println!("{name} over HTTPS, each: p50 {half:?}, p99 {most:?}");
    }
}

criterion_group!(benches, validation, injection, over_https);
criterion_main!(benches);
