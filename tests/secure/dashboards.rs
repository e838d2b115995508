//! Istio's dashboards of the control plane, and the panels of its performance dashboard with
//! istiod's metrics: every panel has data.
//!
//! Kubelets provide the metrics of containers (`container_*`). One metric of Go's runtime (`go_*`)
//! has no counterpart: see docs/operations.md.

use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::wait::until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client;
use crate::panels::{Panel, Query, Scrape};
use crate::pod::Pod;
use crate::server::Server;
use crate::tools::{Connected, MESH};

/// A query of a metric without labels.
const fn plain(selector: &'static str) -> Query {
    Query { selector, by: &[] }
}

/// A query that groups by labels.
const fn by(selector: &'static str, by: &'static [&'static str]) -> Query {
    Query { selector, by }
}

const fn panel(title: &'static str, queries: &'static [Query]) -> Panel {
    Panel { title, queries }
}

/// The dashboards' panels, with their queries except for kubelets' metrics.
const PANELS: [Panel; 19] = [
    panel(
        "Pilot Versions",
        &[by("istio_build{component=\"pilot\"}", &["tag"])],
    ),
    panel("XDS Pushes", &[by("pilot_xds_pushes", &["type"])]),
    panel(
        "Events",
        &[
            by("pilot_k8s_reg_events", &["type", "event"]),
            by("pilot_k8s_cfg_events", &["type", "event"]),
            by("pilot_push_triggers", &["type"]),
        ],
    ),
    panel(
        "Connections",
        &[
            plain("envoy_cluster_upstream_cx_active{cluster_name=\"xds-grpc\"}"),
            plain("pilot_xds"),
        ],
    ),
    panel(
        "Push Errors",
        &[
            by("pilot_total_xds_rejects", &["type"]),
            plain("pilot_total_xds_internal_errors"),
        ],
    ),
    panel("Push Time", &[by("pilot_xds_push_time_bucket", &["le"])]),
    panel(
        "Push Size",
        &[by("pilot_xds_config_size_bytes_bucket", &["le"])],
    ),
    panel(
        "Validation",
        &[
            plain("galley_validation_passed"),
            plain("galley_validation_failed"),
        ],
    ),
    panel(
        "Injection",
        &[
            plain("sidecar_injection_success_total"),
            plain("sidecar_injection_failure_total"),
        ],
    ),
    panel(
        "Istio Component Versions",
        &[by("istio_build", &["component", "tag"])],
    ),
    panel(
        "Performance: Istio Components by Version",
        &[by("istio_build", &["component", "tag"])],
    ),
    panel(
        "Performance: istiod's Memory",
        &[
            plain("process_virtual_memory_bytes"),
            plain("process_resident_memory_bytes"),
            plain("go_memstats_heap_sys_bytes"),
            plain("go_memstats_heap_alloc_bytes"),
            plain("go_memstats_alloc_bytes"),
            plain("go_memstats_heap_inuse_bytes"),
            plain("go_memstats_stack_inuse_bytes"),
        ],
    ),
    panel(
        "Performance: istiod's vCPU",
        &[plain("process_cpu_seconds_total")],
    ),
    panel(
        "Memory Usage",
        &[
            plain("go_memstats_stack_inuse_bytes"),
            plain("go_memstats_heap_inuse_bytes"),
            plain("go_memstats_heap_alloc_bytes"),
        ],
    ),
    panel(
        "Memory Allocations",
        &[
            plain("go_memstats_alloc_bytes_total"),
            plain("go_memstats_mallocs_total"),
        ],
    ),
    panel("Goroutines", &[plain("go_goroutines")]),
    panel("Performance: istiod's Disk", &[plain("process_open_fds")]),
    // Istio's documentation and alerts of the community use these.
    panel(
        "Convergence",
        &[
            by("pilot_proxy_convergence_time_bucket", &["le"]),
            by("pilot_proxy_queue_time_bucket", &["le"]),
        ],
    ),
    panel(
        "Certificates",
        &[
            plain("citadel_server_success_cert_issuance_count"),
            plain("citadel_server_root_cert_expiry_seconds"),
        ],
    ),
];

/// Posts a created object to a webhook, and returns the response's body.
async fn review(server: &Server, path: &str, object: &Value) -> Result<String> {
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "shop", "object": object,
        "userInfo": {"username": "admin", "groups": ["system:authenticated"]}, "oldObject": null,
    });
    let body =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
            .to_string();
    let mut stream = client::connection(server.https, &server.root(), &[b"http/1.1"]).await?;
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}

/// A pod for injection; an invalid second annotation makes injection fail.
fn pod(annotation: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "sidecar.istio.io/inject": "true"},
            "annotations": {(annotation): "nonsense"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    })
}

/// A ServiceEntry with a port of this protocol.
fn entry(protocol: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "bank", "namespace": "shop"},
        "spec": {"hosts": ["bank.example"], "ports": [{"number": 80, "name": "http", "protocol": protocol}]},
    })
}

#[tokio::test]
async fn every_panel_about_the_control_plane_has_data() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let injection = folder.path().join("var/lib/istio/inject");
    std::fs::create_dir_all(&injection)?;
    std::fs::write(injection.join("config"), "")?;
    std::fs::write(injection.join("values"), "{}")?;
    let server =
        Server::with_variables(MESH, &format!("cd '{}';", folder.path().display())).await?;
    let mut proxy = Pod::start(&server, &[])?;
    proxy.wait_ready().await?;

    let mut other = Connected::new(&server, "web-1").await?;
    other.reject_routes().await?;
    ensure!(
        review(&server, "/validate", &entry("HTTP"))
            .await?
            .contains("\"allowed\":true")
    );

    ensure!(
        review(&server, "/validate", &entry("nonsense"))
            .await?
            .contains("\"allowed\":false")
    );
    let injected = review(&server, "/inject", &pod("note")).await?;
    ensure!(injected.contains("\"patch\""), "{injected}");
    let denied = review(&server, "/inject", &pod("status.sidecar.istio.io/port")).await?;
    ensure!(!denied.contains("\"patch\""), "{denied}");

    server.write_mesh(&MESH.replace("port: 80", "port: 81"))?;
    let counted = async |name: &str| {
        server
            .metrics()
            .await
            .is_ok_and(|metrics| metrics.contains(name))
    };

    until("the change is pushed", || counted("pilot_push_triggers{")).await;
    until("the NACK is counted", || {
        counted("pilot_total_xds_rejects{")
    })
    .await;
    let of_proxy = proxy.get(proxy.status, "/stats/prometheus").await?.1;
    let of_server = server.metrics().await?;

    for name in [
        "go_goroutines",
        "go_memstats_mallocs_total",
        "go_memstats_heap_alloc_bytes",
    ] {
        let value = of_server
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        ensure!(value > Some(0.0), "{name}: {value:?}");
    }

    let scrape = Scrape::default().with(&of_server)?.with(&of_proxy)?;
    let empty = scrape.empty_queries(&PANELS, &[])?;
    ensure!(empty.is_empty(), "queries without data: {empty:?}");
    Ok(())
}
