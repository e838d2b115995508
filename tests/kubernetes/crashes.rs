//! Situations in a cluster that crashed istiod; `docs/security-regressions.md` lists them.

use anyhow::{Context, Result, ensure};
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use super::edge::{self, Edge};
use super::{cluster, program};

/// istiod crashed without prioritized leader election, with the settings of that report.
#[tokio::test(flavor = "multi_thread")]
async fn istio_36541_starts_without_prioritized_leader_election() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let environment = [
        ("PRIORITIZED_LEADER_ELECTION", "false"),
        ("INJECTION_WEBHOOK_CONFIG_NAME", ""),
        ("ISTIO_MULTIROOT_MESH", "true"),
        ("PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", "true"),
        ("PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS", "true"),
        ("PILOT_ENABLE_STATUS", "true"),
        ("POD_NAME", "only"),
        ("POD_NAMESPACE", "istio-system"),
    ];

    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &environment)
            .await?;
    let path = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases";
    let leads = async || {
        let leases = edge.writer.get(path).await.unwrap_or_default();
        leases["items"].as_array().is_some_and(|all| {
            all.iter()
                .any(|lease| lease["spec"]["holderIdentity"] == "only")
        })
    };

    edge::eventually("it leads", leads).await;
    ensure!(
        !navarch.output().contains("panicked"),
        "{}",
        navarch.output()
    );
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}

/// istiod crashed when it was not allowed to read the mesh config's ConfigMap.
#[tokio::test(flavor = "multi_thread")]
async fn istio_59153_a_mesh_config_that_may_not_be_read_is_named() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let role = |resources: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "no-maps"},
            "rules": [
                {"apiGroups": ["networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io",
                    "discovery.k8s.io", "networking.k8s.io", "gateway.networking.k8s.io", "gateway.networking.x-k8s.io",
                    "inference.networking.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"]},
            ],
        })
    };

    let others = [
        "services",
        "pods",
        "nodes",
        "namespaces",
        "endpoints",
        "secrets",
        "serviceaccounts",
    ];

    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "no-maps", "namespace": "edge"}});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "no-maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "no-maps"},
        "subjects": [{"kind": "ServiceAccount", "name": "no-maps", "namespace": "edge"}],
    });
    for object in [account, role(&others), binding] {
        edge.writer.put(&object).await?;
    }

    let kubeconfig = cluster.kubeconfig_of("edge", "no-maps").await?;
    let mut navarch = Navarch::launch_on_kubernetes(program(), &kubeconfig, &[], &[]).await?;
    let named = async || navarch.output().contains("onfigMap");
    edge::eventually("the denied ConfigMap is reported", named).await;
    ensure!(
        !navarch.is_ready().await,
        "not ready without the mesh config"
    );

    let all = [&others[..], &["configmaps"]].concat();
    edge.writer.put(&role(&all)).await?;
    navarch.wait_ready().await?;
    ensure!(
        !navarch.output().contains("panicked"),
        "{}",
        navarch.output()
    );

    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

/// istiod crashed when a cluster was removed while its XDS cache was disabled. Here all Services of
/// the only cluster are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn istio_45798_all_services_can_be_deleted_while_nothing_is_cached() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let service = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{number}"), "namespace": "edge"},
            "spec": {"ports": [{"name": "http", "port": 80}], "clusterIP": "None"},
        })
    };

    let slice = |number: usize| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("s{number}-a"), "namespace": "edge", "labels": {"kubernetes.io/service-name": format!("s{number}")}},
            "endpoints": [{"addresses": [format!("10.8.0.{number}")]}], "ports": [{"name": "http", "port": 80}],
        })
    };

    let objects: Vec<Value> = (1..20)
        .flat_map(|number| [service(number), slice(number)])
        .collect();
    for object in &objects {
        edge.writer.put(object).await?;
    }

    let environment = [
        ("PILOT_ENABLE_XDS_CACHE", "false"),
        ("PILOT_ENABLE_EDS_DEBOUNCE", "false"),
    ];
    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &environment)
            .await?;
    let gateway = edge::start_gateway(navarch.xds).await?;

    edge::expect("a", 201).await;
    let knows = async || {
        navarch
            .page("/debug/endpointz")
            .await
            .is_ok_and(|page| page.contains("10.8.0.19"))
    };

    edge::eventually("the endpoints have arrived", knows).await;
    for object in &objects {
        edge.writer.delete(object).await?;
    }

    edge::eventually("they are removed", async || !knows().await).await;
    edge.answer("a", 202).await?;
    edge::expect("a", 202).await;
    gateway.ensure_no_update_rejected().await?;
    ensure!(
        !navarch.output().contains("panicked"),
        "{}",
        navarch.output()
    );

    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}
