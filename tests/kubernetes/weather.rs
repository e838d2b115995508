//! Broken connections, killed servers, expired resource versions, revoked rights: the last state
//! stays in force, and later changes arrive.

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::Cluster;
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait;
use navarch_testkit::wire::{LinkState, Wire};
use serde_json::json;

use super::edge::{self, Edge};
use super::{cluster, program};

#[tokio::test(flavor = "multi_thread")]
async fn broken_and_silent_connections_lose_no_change() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let wire = Wire::start(cluster.address).await?;
    let kubeconfig = cluster.admin_kubeconfig_through(wire.address)?;
    let navarch = Navarch::start_on_kubernetes(
        program(),
        &kubeconfig,
        &["--kubernetes-idle-timeout=2s"],
        &[],
    )
    .await?;
    let gateway = edge::start_gateway(navarch.xds).await?;
    edge::expect("a", 201).await;

    for (weather, name) in [(LinkState::Storm, "broken"), (LinkState::Silent, "silent")] {
        for round in 0..3_u16 {
            let status = 210 + round;
            let begun = wire.begun();
            wire.set(weather);
            edge.answer("a", status).await?;
            edge.writer.put(&edge::answer("gone", 299)).await?;
            let has_noticed = async || wire.begun() > begun;
            edge::eventually(&format!("navarch notices a {name} connection"), has_noticed).await;
            edge.writer.delete(&edge::answer("gone", 299)).await?;

            ensure!(
                navarch.is_ready().await,
                "a {name} connection does not make it unready"
            );
            ensure!(
                edge::ask("a").await != 0,
                "the last configuration is still served"
            );
            wire.set(LinkState::Fair);
            let took = edge::expect("a", status).await;
            edge::expect("gone", 404).await;

            println!("{name} connection: in step {took:?} after it was mended");
        }

        edge.answer("a", 201).await?;
        edge::expect("a", 201).await;
    }

    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_may_crash_and_expire_resource_versions() -> Result<()> {
    let mut guard = cluster().await?;
    let cluster = guard.as_mut().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    edge.answer("b", 201).await?;
    let levels = "--log-level=info,navarch_source=debug";
    let wire = Wire::start(cluster.address).await?;
    let kubeconfig = cluster.admin_kubeconfig_through(wire.address)?;
    let navarch = Navarch::start_on_kubernetes(program(), &kubeconfig, &[levels], &[]).await?;
    let gateway = edge::start_gateway(navarch.xds).await?;

    edge::expect("b", 201).await;

    // The API server is killed under load and restarted. Meanwhile the gateway keeps its
    // configuration, and a new gateway would get it.
    for status in 202..240_u16 {
        edge.answer("a", status).await?;
    }

    let begun = wire.begun();
    cluster.kill_api_server();
    edge::eventually("navarch reports that the API server is down", async || {
        wire.begun() > begun
    })
    .await;
    ensure!(navarch.is_ready().await, "ready without an API server");
    ensure!(edge::ask("a").await > 200, "served without an API server");

    cluster.start_api_server().await?;
    let edge = Edge {
        writer: cluster.writer().await?,
    };
    edge.writer.delete(&edge::answer("b", 201)).await?;
    edge.answer("a", 240).await?;
    println!(
        "API server killed: up to date {:?} after its restart",
        edge::expect("a", 240).await
    );

    edge::expect("b", 404).await;

    // The API server is restarted so that watches are behind, and the resource version from which
    // they would continue is compacted.
    cluster.kill_api_server();
    cluster.start_api_server().await?;
    let edge = Edge {
        writer: cluster.writer().await?,
    };
    for status in 241..260_u16 {
        edge.answer("a", status).await?;
    }

    cluster.compact().await?;
    cluster.kill_api_server();
    cluster.start_api_server().await?;
    let edge = Edge {
        writer: cluster.writer().await?,
    };
    edge.answer("a", 261).await?;

    // The API server itself reports expired watches: its cache begins after the version last read.
    let expired = async || {
        navarch
            .output()
            .contains("resourceVersion expired; relisting")
    };
    edge::eventually("a watch has expired", expired).await;

    println!(
        "after compaction: up to date after {:?}",
        edge::expect("a", 261).await
    );
    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}

/// The rights to read everything except some resources.
fn role(without: &[&str]) -> serde_json::Value {
    let all = [
        "virtualservices",
        "destinationrules",
        "gateways",
        "serviceentries",
        "workloadentries",
        "workloadgroups",
        "sidecars",
        "envoyfilters",
        "proxyconfigs",
        "peerauthentications",
        "requestauthentications",
        "authorizationpolicies",
        "telemetries",
        "wasmplugins",
        "trafficextensions",
    ];

    let istio: Vec<_> = all
        .into_iter()
        .filter(|resource| !without.contains(resource))
        .collect();
    let read = ["get", "list", "watch"];

    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
        "rules": [
            {"apiGroups": ["networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io"], "resources": istio, "verbs": read},
            {"apiGroups": ["", "discovery.k8s.io", "networking.k8s.io", "gateway.networking.k8s.io",
                "gateway.networking.x-k8s.io", "inference.networking.k8s.io"], "resources": ["*"], "verbs": read},
        ],
    })
}

/// Waits until the API server denies the reader access to VirtualServices.
async fn is_forbidden(cluster: &Cluster) {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:edge:reader",
            "resourceAttributes": {"verb": "list", "group": "networking.istio.io", "resource": "virtualservices"},
        },
    });
    wait::until("the API server applies the revoked right", async || {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = cluster
            .call("POST", path, "application/json", &review)
            .await;
        answer.is_ok_and(|answer| answer["status"]["allowed"] == false)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_and_restored_permissions_are_handled() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let writer = &edge.writer;
    writer
        .put(
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "edge"}}),
        )
        .await?;

    writer.put(&role(&[])).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "edge"}],
    });
    writer.put(&binding).await?;
    let direct = cluster.kubeconfig_of("edge", "reader").await?;

    let wire = Wire::start(cluster.address).await?;
    let text = std::fs::read_to_string(&direct)?
        .replace(&cluster.address.to_string(), &wire.address.to_string());
    std::fs::write(&direct, text)?;
    let navarch = Navarch::start_on_kubernetes(program(), &direct, &[], &[]).await?;
    let gateway = edge::start_gateway(navarch.xds).await?;
    edge::expect("a", 201).await;

    // Open watches continue after rights are revoked, so the connections are broken as well.
    writer.put(&role(&["virtualservices"])).await?;
    is_forbidden(cluster).await;
    wire.cut().await;
    let says = async |wanted: bool| {
        navarch
            .page("/debug/push_status")
            .await
            .is_ok_and(|page| page.contains("k8s://VirtualService") == wanted)
    };

    edge::eventually("the denied kind is reported", async || says(true).await).await;
    ensure!(
        navarch.output().contains("k8s://VirtualService"),
        "the log names the kind"
    );

    ensure!(
        navarch.is_ready().await,
        "still ready although access to a kind was revoked"
    );
    let counted = "navarch_refused_configs{kind=\"VirtualService\"} 1";
    ensure!(navarch.metrics().await?.contains(counted), "it is counted");

    // A control plane that starts now is not ready, just like istiod: unknown objects could be DENY
    // policies.
    let mut late = Navarch::launch_on_kubernetes(program(), &direct, &[], &[]).await?;
    let lacks = async || {
        late.page("/ready")
            .await
            .is_ok_and(|body| body.contains("k8s://VirtualService"))
    };
    edge::eventually("readiness names the missing kind", lacks).await;

    ensure!(!late.is_ready().await, "not ready without a kind");
    edge.answer("a", 202).await?;
    let mut other = edge::gateway();
    other["spec"]["servers"][0]["hosts"] = json!(["a.example.com"]);
    writer.put(&other).await?;
    edge::expect("other", 404).await;
    ensure!(
        edge::ask("a").await == 201,
        "the last known objects of the kind stay, while other kinds are updated"
    );

    writer.put(&role(&[])).await?;
    edge::expect("a", 202).await;
    late.wait_ready().await?;
    ensure!(late.stop().await?, "navarch exits on SIGTERM");
    edge::eventually("no kind is missing any longer", async || says(false).await).await;
    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}
