//! Envoys apply changes made with `kubectl`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::{self, GATEWAY, SIDECAR};
use navarch_testkit::client;
use navarch_testkit::cluster::{Cluster, ClusterConfig};
use navarch_testkit::envoy::AdsProtocol;
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::edge::{self, Edge};
use super::{cluster, program, root};

/// The nonce of a type that a proxy has acknowledged, from `/debug/syncz`.
async fn acknowledged(navarch: &Navarch, proxy: &str, kind: &str) -> Result<Option<String>> {
    let all: Value = serde_json::from_str(&navarch.page("/debug/syncz").await?)?;
    let row = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|row| row["proxy"] == proxy);
    Ok(row
        .and_then(|row| row[format!("{kind}_acked")].as_str())
        .map(str::to_owned))
}

/// Waits until an edit takes effect, and prints how long that took.
async fn eventually(what: &str, host: &str, path: &str, wanted: &str) {
    let took = bookshop::answered(what, host, path, wanted).await;
    println!("{what}: the tenth answer {took:?} after the end of kubectl");
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_follow_kubectl() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let writer = cluster.writer().await?;
    let machine = bookshop::kubernetes::machine_address()?;
    let _backends = bookshop::kubernetes::backends(machine).await?;
    for object in bookshop::kubernetes::objects(root, machine)? {
        writer.put(&object).await?;
    }

    let mesh = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"},
        "data": {"mesh": "enableAutoMtls: false\n"},
    });
    writer.put(&mesh).await?;
    let begun = Instant::now();
    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &[]).await?;

    println!("ready on the bookshop after {:?}", begun.elapsed());
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::Delta).await?;
    let mut sidecar = bookshop::sidecar(navarch.xds, AdsProtocol::Delta).await?;
    gateway.wait_ready().await?;
    sidecar.wait_ready().await?;
    eventually("pages", "shop.example.com", "/", "storefront").await;
    follow_virtual_services(cluster, &navarch).await?;
    follow_pods_and_slices(cluster).await?;

    follow_entries_and_deletions(cluster, &bookshop::kubernetes::objects(root, machine)?).await?;
    gateway.ensure_no_update_rejected().await?;
    sidecar.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}

/// Edits of a VirtualService, and their latency: from the end of kubectl to the ACK.
async fn follow_virtual_services(cluster: &Cluster, navarch: &Navarch) -> Result<()> {
    let text = std::fs::read_to_string(sample("gateway.yaml"))?;
    let mut times = Vec::new();

    for (v1, v2, wanted) in [
        (0, 100, "reviews v2"),
        (100, 0, "reviews v1"),
        (0, 100, "reviews v2"),
    ] {
        let before = acknowledged(navarch, "gateway-1.istio-system", "route").await?;
        let edited = text
            .replace("weight: 90", &format!("weight: {v1}"))
            .replace("weight: 10\n", &format!("weight: {v2}\n"));
        cluster.apply(&edited)?;
        let begun = Instant::now();
        while acknowledged(navarch, "gateway-1.istio-system", "route").await? == before {
            ensure!(
                begun.elapsed() < Duration::from_secs(10),
                "the edit is acknowledged"
            );
        }

        times.push(begun.elapsed());
        eventually("edited split", "shop.example.com", "/reviews", wanted).await;
    }

    println!("from the end of kubectl apply to the gateway's ACK: {times:?}");

    // Gateway: another host, and back.
    cluster.apply(&text.replace("shop.example.com", "store.example.com"))?;
    eventually("the edited Gateway", "store.example.com", "/", "storefront").await;
    cluster.apply(&text)?;
    eventually(
        "the original Gateway",
        "shop.example.com",
        "/",
        "storefront",
    )
    .await;
    Ok(())
}

/// Labels of pods, subsets of a DestinationRule, endpoints of a slice.
async fn follow_pods_and_slices(cluster: &Cluster) -> Result<()> {
    let routing = std::fs::read_to_string(sample("reviews-routing.yaml"))?;
    cluster.apply(
        &routing
            .replace("weight: 90", "weight: 100")
            .replace("weight: 10\n", "weight: 0\n"),
    )?;
    eventually("all to v1", "reviews", "/", "reviews v1").await;
    let label = |version: &str| {
        let version = format!("version={version}");
        cluster.kubectl(
            &[
                "label",
                "--overwrite",
                "-n",
                "bookshop",
                "pod",
                "reviews-v1-1",
                &version,
            ],
            "",
        )
    };

    label("v9")?;
    eventually(
        "the subset has no pod",
        "reviews",
        "/",
        "503 Service Unavailable",
    )
    .await;
    label("v1")?;
    eventually("the subset has its pod again", "reviews", "/", "reviews v1").await;

    // DestinationRule: the subset v1 selects v2.
    let rule = routing
        .replace("weight: 90", "weight: 100")
        .replace("weight: 10\n", "weight: 0\n");
    cluster.apply(&rule.replace("        version: v1", "        version: v2"))?;
    eventually("the DestinationRule's subset", "reviews", "/", "reviews v2").await;
    cluster.kubectl(
        &["delete", "-n", "bookshop", "destinationrule", "reviews"],
        "",
    )?;

    eventually(
        "without the DestinationRule",
        "reviews",
        "/",
        "503 Service Unavailable",
    )
    .await;
    cluster.apply(&rule.replace("        version: v1", "        version: v2"))?;
    eventually("the DestinationRule again", "reviews", "/", "reviews v2").await;

    // EndpointSlice: only the WorkloadEntry remains.
    cluster.kubectl(
        &["delete", "-n", "bookshop", "endpointslice", "catalog-1"],
        "",
    )?;
    eventually("without the slice", "catalog", "/", "catalog 2").await;

    Ok(())
}

/// A ServiceEntry is changed; a ServiceEntry and a Service are deleted.
async fn follow_entries_and_deletions(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let find = |kind: &str, name: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .cloned()
            .unwrap()
    };

    let mut bank = find("ServiceEntry", "bank");
    bank["spec"]["hosts"] = json!(["pay.bank.example", "pay2.bank.example"]);
    bank["spec"]["ports"][0]["number"] = json!(9080);
    cluster.apply(&bank.to_string())?;
    eventually("the edited ServiceEntry", "pay2.bank.example", "/", "bank").await;

    // Service and Gateway are deleted.
    cluster.kubectl(&["delete", "-n", "bookshop", "serviceentry", "bank"], "")?;
    let end = Instant::now() + Duration::from_secs(10);
    while client::get(SIDECAR, "pay2.bank.example", "/", &[])
        .await
        .is_ok_and(|reply| reply.body == "bank")
    {
        ensure!(Instant::now() < end, "a deleted ServiceEntry has no effect");
    }
    cluster.kubectl(&["delete", "-n", "bookshop", "service", "reviews"], "")?;
    let end = Instant::now() + Duration::from_secs(10);

    while client::get(GATEWAY, "shop.example.com", "/reviews", &[])
        .await?
        .status
        == 200
    {
        ensure!(Instant::now() < end, "a deleted Service has no effect");
    }

    // Without the VirtualService the host is unknown; without the Gateway the port is closed.
    wait_until_deleted(cluster, "virtualservice", "storefront", async || {
        client::get(GATEWAY, "shop.example.com", "/", &[])
            .await
            .is_ok_and(|reply| reply.status == 404)
    })
    .await?;
    wait_until_deleted(cluster, "gateway", "bookshop", async || {
        tokio::net::TcpStream::connect(GATEWAY).await.is_err()
    })
    .await
}

/// Deletes an object of the sample, and waits until that has its effect.
async fn wait_until_deleted(
    cluster: &Cluster,
    kind: &str,
    name: &str,
    is_seen: impl AsyncFn() -> bool,
) -> Result<()> {
    let listed = cluster.kubectl(&["get", kind, "--all-namespaces", "-o", "json"], "")?;
    let listed: Value = serde_json::from_str(&listed)?;
    let all = listed["items"].as_array().cloned().unwrap_or_default();
    let found = all
        .iter()
        .find(|object| object["metadata"]["name"] == name)
        .with_context(|| format!("{listed}"))?;
    let namespace = found["metadata"]["namespace"]
        .as_str()
        .context("a namespace")?;

    ensure!(!is_seen().await, "it is in force before");
    cluster.kubectl(&["delete", "-n", namespace, kind, name], "")?;
    let begun = Instant::now();

    while !is_seen().await {
        ensure!(
            begun.elapsed() < Duration::from_secs(10),
            "a deleted {kind} has no effect"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }

    println!(
        "a deleted {kind} has no effect {:?} after kubectl's exit",
        begun.elapsed()
    );

    Ok(())
}

/// A file of the sample.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/samples/bookshop")
        .join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_follow_pods_through_kubernetes_own_controller() -> Result<()> {
    // A separate cluster: the controller would add EndpointSlices beside those of the other tests.
    let config = ClusterConfig {
        controllers: vec!["endpointslice-controller".to_owned()],
        ..ClusterConfig::default()
    };
    let cluster = Cluster::start_with(config).await?;
    cluster.apply_crds(root())?;
    let writer = cluster.writer().await?;

    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    writer.put(&service).await?;
    let pod = |number: usize, ready: bool| {
        let ready = if ready { "True" } else { "False" };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("web-{number}"), "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [{"name": "web", "image": "web", "ports": [{"containerPort": 8080}]}]},
            "status": {
                "phase": "Running", "podIP": format!("10.1.0.{number}"), "podIPs": [{"ip": format!("10.1.0.{number}")}],
                "conditions": [{"type": "Ready", "status": ready}],
            },
        })
    };

    // The controller ignores pods on unknown nodes.
    writer
        .put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await?;
    for number in 1..=3 {
        writer.put(&pod(number, true)).await?;
    }

    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &[]).await?;
    let healthy = async || {
        let page: Value = serde_json::from_str(
            &navarch
                .page("/debug/endpointShardz")
                .await
                .unwrap_or_default(),
        )
        .unwrap_or_default();
        let endpoints =
            page["web.shop.svc.cluster.local"]["shop"]["Shards"]["Kubernetes/Kubernetes"]
                .as_array()
                .cloned();
        let mut addresses: Vec<_> = endpoints
            .into_iter()
            .flatten()
            .filter(|endpoint| endpoint["HealthStatus"] == 1)
            .map(|endpoint| {
                endpoint["Addresses"][0]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect();

        addresses.sort();
        addresses.join(" ")
    };

    let wait = async |wanted: &str| {
        edge::eventually(&format!("endpoints {wanted}"), async || {
            healthy().await == wanted
        })
        .await
    };

    wait("10.1.0.1 10.1.0.2 10.1.0.3").await;
    writer.put(&pod(2, false)).await?;
    println!(
        "an unready pod: its endpoint is removed after {:?}",
        wait("10.1.0.1 10.1.0.3").await
    );
    writer.put(&pod(2, true)).await?;
    wait("10.1.0.1 10.1.0.2 10.1.0.3").await;

    writer.delete(&pod(1, true)).await?;
    wait("10.1.0.2 10.1.0.3").await;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn crds_may_be_created_and_deleted() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 418).await?;
    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &[]).await?;
    let gateway = edge::start_gateway(navarch.xds).await?;
    edge::expect("a", 418).await;

    cluster.kubectl(
        &["delete", "crd", "virtualservices.networking.istio.io"],
        "",
    )?;
    edge::expect("a", 404).await;
    cluster.apply_crds(root())?;
    edge.answer("a", 201).await?;
    println!(
        "a kind that is new: its first object in force after {:?}",
        edge::expect("a", 201).await
    );

    gateway.ensure_no_update_rejected().await?;

    // Without any CRD it becomes ready, too, and reads the kinds once their CRDs are created.
    cluster.kubectl(&["delete", "crd", "--all"], "")?;
    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &[]).await?;
    cluster.apply_crds(root())?;
    edge.writer.put(&edge::answer("b", 202)).await?;
    edge::eventually("a kind that came later", async || {
        navarch
            .page("/debug/configz")
            .await
            .is_ok_and(|page| page.contains("b.example.com"))
    })
    .await;
    Ok(())
}
