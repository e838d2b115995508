//! The label comes and goes while an Envoy runs, and services that routes name come later than these.

use anyhow::{Result, ensure};
use navarch_testkit::client;
use navarch_testkit::requests::Requests;
use navarch_testkit::wait::until_within;

use super::{OTHERS, TIMEOUT, World, active_clusters, mesh, service, until_clusters};
use crate::fine_grained::until_reconnected;
use crate::pod::Pod;

/// The label of the namespace, as [`mesh`] has it.
const LEARNED: &str = "navarch.io/scope: learned";
const WHOLE: &str = "navarch.io/scope: whole";

#[tokio::test]
async fn the_label_comes_and_goes_while_requests_go_on() -> Result<()> {
    let world = World::start().await?;
    let services = [
        service("reviews", world.port, world.reviews.address, "*"),
        service("ledger", world.port, world.ledger.address, "*"),
    ];
    let labelled = mesh(world.port, &services.concat());
    let unlabelled = labelled.replace(LEARNED, WHOLE);
    world.server.write_mesh(&unlabelled)?;
    let mut pod = Pod::start(&world.server, &[])?;
    pod.wait_ready().await?;
    let all = OTHERS + services.len();
    until_count(&pod, all).await;
    let requests = Requests::begin(world.listener(), "reviews.example", "/");

    // Put while an Envoy runs, it takes nothing away, nor do new streams.
    world.server.write_mesh(&labelled)?;
    until_reconnected(&pod).await;
    ensure!(active_clusters(&pod).await?.len() == all, "put");
    let reply = client::get(world.listener(), "ledger.example", "/", &[]).await?;
    ensure!(reply.status == 200, "{reply:?}");
    requests.end().await?;
    ensure!(pod.stop().await? == 0, "it exits with 0");

    // The next Envoy has what it uses, and everything once the label is removed.
    let mut next = Pod::start(&world.server, &[("POD_NAME", "web-2")])?;
    next.wait_ready().await?;
    let reply = client::get(world.listener(), "reviews.example", "/", &[]).await?;
    ensure!(reply.status == 200, "{reply:?}");
    let few = active_clusters(&next).await?;
    ensure!(few.len() < all, "{few:?}");

    let requests = Requests::begin(world.listener(), "reviews.example", "/");
    world.server.write_mesh(&unlabelled)?;
    until_count(&next, all).await;
    until_reconnected(&next).await;
    let reply = client::get(world.listener(), "ledger.example", "/", &[]).await?;
    ensure!(reply.status == 200, "{reply:?}");
    let tally = requests.end().await?;
    println!("{} requests while the label went", tally.asked);
    ensure!(next.stop().await? == 0, "it exits with 0");
    Ok(())
}

/// Waits until an Envoy has so many clusters of services.
async fn until_count(pod: &Pod, count: usize) {
    let has_them = async || {
        let found = active_clusters(pod).await;
        found.is_ok_and(|found| found.len() == count)
    };
    until_within(TIMEOUT, &format!("{count} clusters"), has_them).await;
}

#[tokio::test]
async fn a_service_that_comes_after_its_first_request_is_reached() -> Result<()> {
    let world = World::start().await?;
    let ledger = service("ledger", world.port, world.ledger.address, "*");
    let route = format!(
        "
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: ledger, namespace: bank}}
spec:
  hosts: [ledger.example]
  http:
  - match: [{{uri: {{prefix: /later}}}}]
    route: [{{destination: {{host: later.example, port: {{number: {port}}}}}}}]
  - route: [{{destination: {{host: ledger.example, port: {{number: {port}}}}}}}]
",
        port = world.port
    );
    let without = mesh(world.port, &[&*ledger, &route].concat());
    world.server.write_mesh(&without)?;
    let mut pod = Pod::start(&world.server, &[])?;
    pod.wait_ready().await?;

    let path = async |path: &str| client::get(world.listener(), "ledger.example", path, &[]).await;
    let is_missing = async || {
        let reply = path("/later").await;
        reply.is_ok_and(|reply| reply.status.is_server_error())
    };
    until_within(TIMEOUT, "a route to no service", is_missing).await;
    let reply = path("/").await?;
    ensure!(reply.status == 200 && reply.body == "ledger", "{reply:?}");

    let later = service("later", world.port, world.reviews.address, "*");
    let with = mesh(world.port, &[&*ledger, &route, &later].concat());
    world.server.write_mesh(&with)?;
    let is_reached = async || path("/later").await.is_ok_and(|reply| reply.status == 200);
    until_within(TIMEOUT, "a response of the later service", is_reached).await;
    until_clusters(&pod, &world.clusters(&["later", "ledger"])).await;
    let reply = path("/later").await?;
    ensure!(reply.status == 200 && reply.body == "reviews", "{reply:?}");
    ensure!(pod.stop().await? == 0, "it exits with 0");
    Ok(())
}
