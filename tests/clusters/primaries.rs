//! Two control planes, each in its own cluster, which read each other's cluster.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::joined::{self, Cut};
use navarch_testkit::mesh;
use navarch_testkit::sniffer::Seen;
use serde_json::{Value, json};

use crate::pair::{Pair, Side};
use crate::program;
use crate::shop::{self, NAMESPACE, Shop};

/// Sent in requests; must never be visible on the wire.
const SECRET: &str = "the-word-that-nobody-may-read";
/// Logged when the other cluster is synced.
const SYNCED: &str =
    r#"istiod_remote_cluster_sync_status{cluster="east",cluster_type="remote",status="synced"} 1"#;
/// Logged when the other cluster could not be read before the timeout.
const LATE: &str =
    r#"istiod_remote_cluster_sync_status{cluster="east",cluster_type="remote",status="timeout"} 1"#;
/// The first token for reading the other cluster; `istioctl create-remote-secret` uses this name
/// for its Secret.
const TOKEN: &str = "istio-reader-service-account-istio-remote-secret-token";

/// Installs a control plane and a gateway in each cluster, with a common root and the Secret of the
/// other cluster.
pub(crate) async fn install(pair: &Pair) -> Result<()> {
    for (side, authority) in pair.sides().into_iter().zip(joined::authorities(2)?) {
        side.place(&json!({}))?;
        side.mesh.apply(&[authority])?;
    }

    pair.in_both(|side| {
        side.install(&["env.PILOT_REMOTE_CLUSTER_TIMEOUT=3s".to_owned()])?;
        side.gateway()?;
        side.mesh.apply(&[json!({
            "apiVersion": "security.istio.io/v1",
            "kind": "PeerAuthentication",
            "metadata": {"name": "default", "namespace": mesh::NAMESPACE},
            "spec": {"mtls": {"mode": "STRICT"}},
        })])
    })?;

    for side in pair.sides() {
        side.reads(pair.other(side), TOKEN).await?;
    }

    pair.counts(&pair.west, SYNCED).await;
    pair.counts(&pair.east, &SYNCED.replace("\"east\"", "\"west\""))
        .await;
    Ok(())
}

/// Captures the traffic between the two nodes during an action.
fn seen_on_the_wire(pair: &Pair, work: impl Fn() -> Result<()>) -> Result<Seen> {
    let one = pair.west.mesh.node.address()?;
    let other = pair.east.mesh.node.address()?;
    let mut command = pair.west.mesh.node.in_network(&program("workload"))?;
    command.args(["sniff", &one.to_string(), &other.to_string(), SECRET]);
    let mut sniffer = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(sniffer.stdout.take().context("it prints")?);
    output.read_line(&mut String::new())?;
    let done = work();
    drop(sniffer.stdin.take());
    let mut printed = String::new();
    output.read_to_string(&mut printed)?;
    sniffer.wait()?;
    done?;
    serde_json::from_str(&printed).with_context(|| format!("sniff printed {printed:?}"))
}

/// The address of the only pod of the service in a cluster.
fn pod_of(side: &Side) -> Result<String> {
    let list = side
        .mesh
        .node
        .get(NAMESPACE, &["pods", "--selector=app=reviews"])?;
    Ok(list["items"][0]["status"]["podIP"]
        .as_str()
        .context("an address")?
        .to_owned())
}

/// Pods of the other network cannot be reached directly, yet clients of both clusters get responses
/// from both, and the traffic between them is encrypted.
pub(crate) async fn requests_go_through_the_gateways_with_mutual_tls(
    pair: &Pair,
    shop: &mut Shop,
) -> Result<()> {
    for side in pair.sides() {
        let pod = pod_of(pair.other(side))?;
        let route = side.mesh.node.run_in_network("ip", &["route", "get", &pod]);
        ensure!(
            route.is_err(),
            "{} reaches {pod} without a gateway",
            side.name
        );
    }

    let both: &[&Side] = &[&pair.west, &pair.east];
    shop.answered("both answer", [(&pair.west, both), (&pair.east, both)])
        .await?;
    let seen = seen_on_the_wire(pair, || {
        let tally = shop::ask(&pair.west, 20, &format!("reviews:9080/reviews/{SECRET}"))?;
        ensure!(
            tally["answered"]["reviews: east"].as_u64() > Some(0),
            "none of 20 went to the other cluster: {tally}"
        );
        ensure!(tally["failed"] == 0, "{tally}");
        Ok(())
    })?;

    ensure!(
        seen.frames > 0 && seen.clear == 0,
        "between the clusters: {seen:?}"
    );

    Ok(())
}

/// First the other cluster's API server is unreachable, also for a control plane that restarts
/// meanwhile; then the whole cluster is. Clients keep using the known endpoints, then the local
/// ones.
pub(crate) async fn the_other_cluster_is_cut_off(pair: &Pair, shop: &mut Shop) -> Result<()> {
    let node = &pair.west.mesh.node;
    joined::cut(node, Cut::Api, false)?;
    shop.fails_over(pair, &pair.west, &pair.east).await?;
    shop.count("its API server cannot be reached").await?;
    pair.west.kubectl(
        mesh::NAMESPACE,
        &["rollout", "restart", "deployment/istiod"],
    )?;

    pair.west.settled(mesh::NAMESPACE)?;
    pair.counts(&pair.west, LATE).await;
    shop.all_local(pair, "a control plane without the other cluster")
        .await?;
    joined::cut(node, Cut::Everything, false)?;
    shop.all_local(pair, "no connection reaches the other cluster")
        .await?;
    joined::cut(node, Cut::Everything, true)?;

    joined::cut(node, Cut::Api, true)?;
    pair.counts(&pair.west, SYNCED).await;
    shop.fails_over(pair, &pair.west, &pair.east).await
}

/// A new token replaces the first one while requests go to the other cluster; changes there still
/// arrive. Then the Secret is deleted.
pub(crate) async fn the_secret_is_rotated_and_removed(pair: &Pair, shop: &mut Shop) -> Result<()> {
    let west = &pair.west;
    let east = &pair.east;
    west.scale(NAMESPACE, "reviews-v1", 0)?;
    west.reads(east, "rotated").await?;
    let rotated = r#"remote_cluster_secret_events_total{event="update"} 1"#;
    pair.counts(west, rotated).await;
    east.kubectl(mesh::NAMESPACE, &["delete", "secret", TOKEN])?;
    shop.answered("another token", [(west, &[east]), (east, &[east])])
        .await?;

    // A client resolves a service in its own cluster's DNS, so the Service must exist in both.
    let news = |side: &Side| pods::with_response(NAMESPACE, "news", side.name);
    let is_service = |object: &Value| object["kind"] == "Service";
    west.mesh.apply(
        &news(west)
            .into_iter()
            .filter(is_service)
            .collect::<Vec<_>>(),
    )?;

    east.mesh.apply(&news(east))?;
    east.mesh.rolled_out(NAMESPACE)?;
    pair.until("what came after the rotation is seen", async || {
        shop::ask(west, 5, "news:9080/news/")
            .is_ok_and(|tally| tally["answered"]["news: east"] == 5)
    })
    .await;
    west.scale(NAMESPACE, "reviews-v1", 1)?;

    shop.all_local(pair, "pods in west again").await?;

    west.kubectl(
        mesh::NAMESPACE,
        &["delete", "secret", &joined::secret_name(east.name)],
    )?;
    pair.counts(west, r#"istiod_managed_clusters{cluster_type="remote"} 0"#)
        .await;
    pair.until(
        "without its Secret, the cluster is not part of the mesh",
        async || shop::ask(west, 5, "news:9080/news/").is_ok_and(|tally| tally["failed"] == 5),
    )
    .await;
    shop.all_local(pair, "without the Secret").await
}
