//! Changes of the mesh under traffic: pods, the control plane and the API server are restarted. No
//! request may fail.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::wait;
use serde_json::Value;

use crate::istioctl::tags;
use crate::traffic::{all_see, split};
use crate::watched::Watched;
use crate::{root, seconds};

/// How long clients keep counting after a change.
pub(crate) const AFTER: Duration = Duration::from_secs(2);
/// The default control plane of proxies.
const USUAL: &str = "istiod.istio-system.svc:15012";
/// The namespaces whose pods carry the traffic.
const SERVING: [&str; 2] = [pods::NAMESPACE, pods::GATEWAY];

/// Waits until all Deployments of a namespace are rolled out and none of its pods is terminating.
pub(crate) async fn settled(mesh: &Mesh, namespace: &str) -> Result<()> {
    mesh.rolled_out(namespace)?;
    wait::until(&format!("no pod of {namespace} is terminating"), || async {
        let list = mesh.node.get(namespace, &["pods"]).unwrap_or_default();
        list["items"].as_array().is_some_and(|pods| {
            pods.iter()
                .all(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        })
    })
    .await;
    Ok(())
}

/// Restarts the pods of some Deployments by a rolling update.
pub(crate) async fn restart(mesh: &Mesh, namespace: &str, deployments: &[&str]) -> Result<()> {
    let arguments = ["--namespace", namespace, "rollout", "restart", "deployment"];
    mesh.node.kubectl(&[&arguments[..], deployments].concat())?;
    settled(mesh, namespace).await
}

/// Replaces all pods of the bookshop and of the gateway.
pub(crate) async fn rolling_restart(mesh: &Mesh, watched: &mut Watched) -> Result<()> {
    for namespace in SERVING {
        restart(mesh, namespace, &[]).await?;
    }
    watched.count_lost("rolling restart", seconds(2)).await
}

/// Scales a Deployment from one pod to five and back.
pub(crate) async fn scale_up_and_down(mesh: &Mesh, watched: &mut Watched) -> Result<()> {
    for replicas in ["1", "5", "1"] {
        let replicas = format!("--replicas={replicas}");
        mesh.node.kubectl(&[
            "--namespace",
            pods::NAMESPACE,
            "scale",
            "deployment/catalog-v1",
            &replicas,
        ])?;
        settled(mesh, pods::NAMESPACE).await?;
    }
    watched.count_lost("scaled 1, 5, 1", seconds(2)).await
}

/// The leading replica, read from the lock for the namespaces' roots: a ConfigMap, as with istiod,
/// or a Lease.
fn leader(mesh: &Mesh) -> Result<String> {
    let lock = |kind| {
        mesh.node.get(
            mesh::NAMESPACE,
            &[kind, "istio-namespace-controller-election"],
        )
    };
    let holder = match lock("configmap") {
        Ok(lock) => {
            let record =
                lock["metadata"]["annotations"]["control-plane.alpha.kubernetes.io/leader"]
                    .as_str();
            serde_json::from_str::<Value>(record.context("the lock has no leader record")?)?["holderIdentity"].clone()
        }
        Err(_) => lock("lease")?["spec"]["holderIdentity"].clone(),
    };
    let holder = holder.as_str().filter(|holder| !holder.is_empty());
    Ok(holder.context("no replica leads")?.to_owned())
}

/// Kills the leading replica of two, and returns its name. The other one must serve at once.
pub(crate) async fn a_leader_is_killed(mesh: &Mesh, watched: &mut Watched) -> Result<String> {
    mesh.install("navarch", &["replicaCount=2"])?;
    let before = leader(mesh)?;
    mesh.node.kubectl(&[
        "--namespace",
        mesh::NAMESPACE,
        "delete",
        "pod",
        &before,
        "--grace-period=0",
        "--force",
    ])?;
    // The API server may still call the killed replica's webhook, so repeat the change.
    wait::until("the change is taken", || async { split(mesh, 100).is_ok() }).await;
    all_see(mesh, "v2").await?;
    mesh.rolled_out(mesh::NAMESPACE)?;
    watched.count_lost("leader killed", AFTER).await?;
    Ok(before)
}

/// Waits until another replica than the killed one leads: that takes until the lock expires.
pub(crate) async fn another_leads(mesh: &Mesh, before: &str) {
    wait::until("another replica leads", || async {
        leader(mesh).is_ok_and(|now| now != before)
    })
    .await;
}

/// The number of restarts of the control plane's containers.
fn restarts(mesh: &Mesh) -> Result<u64> {
    let list = mesh
        .node
        .get(mesh::NAMESPACE, &["pods", "--selector=app=istiod"])?;
    let pods = list["items"].as_array().context("a list")?;
    let statuses = pods
        .iter()
        .filter_map(|pod| pod["status"]["containerStatuses"].as_array())
        .flatten();
    Ok(statuses
        .filter_map(|status| status["restartCount"].as_u64())
        .sum())
}

/// The API server is killed and restarted. Meanwhile the control plane serves its last state; then
/// it reads new changes.
pub(crate) async fn the_api_server_is_down(mesh: &Mesh, watched: &mut Watched) -> Result<()> {
    mesh.node.kill("apiserver")?;
    wait::until("the API server is away", || async {
        mesh.node.kubectl(&["get", "namespaces"]).is_err()
    })
    .await;
    watched.count_lost("API server away", seconds(10)).await?;
    ensure!(
        mesh.node.kubectl(&["get", "namespaces"]).is_err(),
        "the API server is still down"
    );

    mesh.node.restart("apiserver")?;
    wait::until("the API server is back", || async {
        mesh.node.kubectl(&["get", "--raw", "/readyz"]).is_ok()
    })
    .await;
    split(mesh, 0)?;
    all_see(mesh, "v1").await?;
    ensure!(restarts(mesh)? == 0, "the control plane was not restarted");

    watched.count_lost("API server back", AFTER).await
}

/// The sidecar image of the first pod that matches a selector.
pub(crate) fn sidecar(mesh: &Mesh, selector: &str) -> Result<Value> {
    let list = mesh
        .node
        .get(pods::NAMESPACE, &["pods", "--selector", selector])?;
    let containers = list["items"][0]["spec"]["initContainers"]
        .as_array()
        .context("no pod with a sidecar")?;
    containers
        .iter()
        .find(|container| container["name"] == "istio-proxy")
        .cloned()
        .context("a sidecar")
}

/// The control plane address of the catalog's sidecar; empty if it is the default.
fn asks(mesh: &Mesh) -> Result<String> {
    let proxy = sidecar(mesh, "app=catalog")?;
    let env = proxy["env"].as_array().context("variables")?;
    let config = env
        .iter()
        .find(|variable| variable["name"] == "PROXY_CONFIG")
        .context("PROXY_CONFIG")?;
    let config: Value = serde_json::from_str(config["value"].as_str().context("a text")?)?;
    Ok(config["discoveryAddress"]
        .as_str()
        .unwrap_or(USUAL)
        .to_owned())
}

/// Sets labels of the bookshop's namespace, and restarts the catalog.
async fn relabel(mesh: &Mesh, labels: [&str; 2]) -> Result<()> {
    let arguments = [
        "label",
        "--overwrite",
        "namespace",
        pods::NAMESPACE,
        labels[0],
        labels[1],
    ];
    mesh.node.kubectl(&arguments)?;
    restart(mesh, pods::NAMESPACE, &["catalog-v1"]).await
}

/// A second revision of the control plane takes over pods, first by its name, then by a tag, and
/// gives them back.
pub(crate) async fn a_canary_by_revision_and_tag(mesh: &Mesh, watched: &mut Watched) -> Result<()> {
    mesh.install(
        "navarch-canary",
        &["revision=canary", "revisionTags={prod}"],
    )?;
    let canary = format!("istiod-canary.{}.svc:15012", mesh::NAMESPACE);
    let by_revision = ["istio-injection-", "istio.io/rev=canary"];
    let by_tag = ["istio-injection-", "istio.io/rev=prod"];
    let back = ["istio-injection=enabled", "istio.io/rev-"];

    for (labels, wanted) in [
        (by_revision, canary.as_str()),
        (by_tag, canary.as_str()),
        (back, USUAL),
    ] {
        relabel(mesh, labels).await?;
        let address = asks(mesh)?;
        ensure!(
            address == wanted,
            "{labels:?}: the sidecar connects to {address} instead of {wanted}"
        );
        tags::a_tag_is_listed(mesh, labels == by_tag)?;
        watched
            .count_lost(&format!("under {}", labels[1]), AFTER)
            .await?;
    }

    mesh.uninstall("navarch-canary")?;
    split(mesh, 0)?;
    all_see(mesh, "v1").await?;
    watched.count_lost("canary gone", AFTER).await
}

/// The node is stopped with everything on it, and started again. All pods must come back, and from
/// then on no request may fail.
pub(crate) async fn the_node_is_started_again(
    mesh: &mut Mesh,
    watched: &mut Watched,
) -> Result<()> {
    mesh.reboot(&[
        mesh::NAMESPACE,
        pods::NAMESPACE,
        pods::OUTSIDE,
        pods::GATEWAY,
    ])
    .await?;
    watched.find_again(mesh).await?;
    watched
        .count_lost("after the node's start", seconds(5))
        .await?;
    split(mesh, 100)?;
    all_see(mesh, "v2").await?;
    // Apply everything again: the node kept its state.
    mesh.bookshop(root())?;
    watched.count_lost("applied again", AFTER).await
}
