//! The cost of injecting a pod, from its JSON to the patch: with 1 and 20 containers, and with 200
//! variables; and with the templates of Istio's chart (`scripts/istio-chart`) in place of those that
//! are compiled in.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    clippy::unwrap_used,
    reason = "the macros of criterion generate functions without docs, and a bench that cannot start must fail"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use navarch::api::mesh::MeshConfig;
use navarch::webhook::inject::{InjectRequest, Injector, InjectorInputs};
use navarch_testkit::istio;
use navarch_tests::injection::stock;
use serde_json::{Value, json};

/// The server's allocator, which is part of the cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn pod(containers: usize, variables: usize) -> String {
    let env: Vec<_> = (0..variables)
        .map(|at| json!({ "name": format!("NAME_{at}"), "value": format!("value {at}") }))
        .collect();
    let container = |at: usize| {
        json!({
            "name": format!("web-{at}"),
            "image": "registry.example.com/web:1",
            "env": env,
            "ports": [{ "name": "http", "containerPort": 8080 + at }],
            "readinessProbe": { "httpGet": { "path": "/ready", "port": "http" }, "periodSeconds": 5 },
            "livenessProbe": { "httpGet": { "path": "/live", "port": 8080 + at }, "timeoutSeconds": 3 },
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }]
        })
    };

    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "uid": "1", "controller": true });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "web-5d8f-",
            "namespace": "shop",
            "labels": { "app": "web", "version": "v1", "pod-template-hash": "5d8f" },
            "annotations": { "prometheus.io/port": "9090" },
            "ownerReferences": [owner]
        },
        "spec": {
            "serviceAccountName": "web",
            "containers": (0..containers).map(container).collect::<Vec<_>>(),
            "volumes": [{ "name": "data", "emptyDir": {} }]
        }
    })
    .to_string()
}

/// Injects a pod: from its JSON to the JSON of the patch.
fn inject(injector: &Injector, text: &str) -> String {
    let pod: Value = serde_json::from_str(text).unwrap();
    let request = InjectRequest {
        pod: &pod,
        namespace: "shop",
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };
    injector
        .inject(&request)
        .unwrap()
        .patch()
        .unwrap()
        .to_string()
}

fn injection(c: &mut Criterion) {
    let injector =
        Injector::new(&InjectorInputs::new(Arc::new(MeshConfig::istio_defaults()))).unwrap();

    for (name, text) in [
        ("1 container", pod(1, 0)),
        ("20 containers", pod(20, 0)),
        ("200 variables", pod(1, 200)),
    ] {
        c.bench_function(name, |b| b.iter(|| inject(&injector, &text)));
    }

    if let Some(chart) = istio::chart("istio-control/istio-discovery") {
        let rendering = Injector::new(&stock::inputs(&chart, &json!({}))).unwrap();
        let text = pod(1, 0);
        c.bench_function("1 container by the chart's templates", |b| {
            b.iter(|| inject(&rendering, &text))
        });
    }

    let mut text: Value = serde_json::from_str(&pod(1, 0)).unwrap();
    if let Some(annotations) = text
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.insert("proxy.istio.io/config".to_owned(), json!("concurrency: 4"));
    }
    let text = text.to_string();
    c.bench_function("1 container with a proxy config", |b| {
        b.iter(|| inject(&injector, &text))
    });
}

criterion_group!(benches, injection);
criterion_main!(benches);
