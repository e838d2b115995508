//! Changes of zones and nodes under traffic of sidecars.

use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh;
use navarch_testkit::wait;

use crate::shop::{self, AFTER, GIVEN_UP, LOCAL, PLAIN, SHOPPER, SPREAD, Shop, VISITOR};
use crate::zones::{FAR, NEAR, Zones};

/// The controllers take a node for lost after 50 s without its heartbeat; a webhook's connection to
/// a lost replica may take as long.
const NODE_LOST: Duration = Duration::from_secs(120);
/// The number of requests after which a client is taken to lose no more.
const REQUESTS: u64 = 40;

/// The last pod of a zone ends, and another one starts there.
pub(crate) async fn a_zone_without_pods_is_served_by_the_other(
    zones: &Zones,
    shop: &mut Shop,
) -> Result<()> {
    let deployment = format!("{LOCAL}-{NEAR}");
    zones.scale(shop::NAMESPACE, &deployment, 0)?;
    shop.answered("no pod near", SHOPPER, LOCAL, &[FAR]).await?;
    zones.scale(shop::NAMESPACE, &deployment, 1)?;
    shop.answered("a pod near again", SHOPPER, LOCAL, &[NEAR])
        .await?;
    shop.answered("a pod near again", VISITOR, LOCAL, &[FAR])
        .await
}

/// A node with a replica of the control plane disappears. Requests with rules are served by the
/// other zone at once, all others when the cluster knows that the node is lost; meanwhile
/// configuration reaches all proxies that are left.
pub(crate) async fn a_node_is_lost(zones: &Zones, shop: &mut Shop) -> Result<()> {
    let before = mesh::counted(shop.careless).await?;
    zones.mesh.node.lose_worker(NEAR)?;
    // By then every request that waited for the lost node has failed.
    shop.count_lost("node lost", GIVEN_UP).await?;
    let careless = mesh::counted(shop.careless).await?.since(&before);
    let failed = careless.failed;
    let requests = careless.asked;
    eprintln!("  node lost, without rules: {failed} of {requests} lost");
    ensure!(
        failed > 0,
        "the node was lost without traffic: {careless:?}"
    );

    for service in [LOCAL, SPREAD] {
        shop.answered("node lost", SHOPPER, service, &[FAR]).await?;
    }
    a_change_reaches_the_proxies_that_are_left(zones, shop).await?;
    wait::until_within(NODE_LOST, "the lost node is not Ready", async || {
        zones.is_ready(NEAR).is_ok_and(|ready| !ready)
    })
    .await;

    let namespace = ["--namespace", shop::NAMESPACE];
    let delete = ["delete", "virtualservice", PLAIN];
    zones
        .mesh
        .node
        .kubectl(&[&namespace[..], &delete].concat())?;
    shop.count_lost("node not Ready", GIVEN_UP).await?;

    let before = mesh::counted(shop.careless).await?;
    let careless = mesh::more(shop.careless, &before, REQUESTS)
        .await?
        .since(&before);
    careless.none_lost("without rules, when the node is not Ready", REQUESTS)?;
    let own = format!("{PLAIN}: {PLAIN} {FAR}");
    ensure!(
        careless.answered.keys().eq([&own]),
        "the client is redirected no longer: {careless:?}"
    );
    Ok(())
}

/// Also a proxy whose control plane was on the lost node.
async fn a_change_reaches_the_proxies_that_are_left(zones: &Zones, shop: &Shop) -> Result<()> {
    // The API server may still call the lost replica's webhook, so repeat the change.
    wait::until_within(NODE_LOST, "the change is taken", async || {
        zones.mesh.apply(&[shop::redirected()]).is_ok()
    })
    .await;

    let redirected = format!("{PLAIN}: {LOCAL} {FAR}");
    let before = mesh::counted(shop.careless).await?;
    wait::until_some_within(NODE_LOST, "requests are redirected", async || {
        let tally = mesh::counted(shop.careless)
            .await
            .map_err(|error| format!("{error:#}"))?
            .since(&before);
        wait::wanted(tally, |tally| tally.answered.contains_key(&redirected))
            .map_err(|tally| format!("{tally:?}"))
    })
    .await;
    Ok(())
}

/// The node is started with what it had.
pub(crate) async fn the_lost_node_returns(zones: &Zones, shop: &mut Shop) -> Result<()> {
    zones.mesh.node.start_worker(NEAR)?;
    for namespace in [mesh::NAMESPACE, shop::NAMESPACE, pods::NAMESPACE] {
        zones.mesh.rolled_out(namespace)?;
    }
    shop.answered("node back", SHOPPER, LOCAL, &[NEAR]).await?;
    shop.answered("node back", SHOPPER, SPREAD, &[NEAR, FAR])
        .await
}

/// `kubectl drain` evicts all pods of a node, with a replica of the control plane.
pub(crate) async fn a_node_is_drained(zones: &Zones, shop: &mut Shop) -> Result<()> {
    zones.mesh.node.kubectl(&[
        "drain",
        NEAR,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=100s",
    ])?;
    shop.answered("node drained", SHOPPER, LOCAL, &[FAR])
        .await?;
    zones.mesh.rolled_out(mesh::NAMESPACE)?;
    let replicas = zones.nodes_of(mesh::NAMESPACE, "app=istiod")?;
    ensure!(
        replicas == [FAR, FAR],
        "replicas of the control plane are on {replicas:?}"
    );

    zones.mesh.node.kubectl(&["uncordon", NEAR])?;
    zones.mesh.rolled_out(shop::NAMESPACE)?;
    shop.answered("node in use again", SHOPPER, LOCAL, &[NEAR])
        .await?;
    shop.count_lost("node in use again", AFTER).await
}
