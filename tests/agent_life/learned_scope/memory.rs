//! A workload that uses three services of a large mesh: what its Envoy holds with a whole and with a
//! learned scope, and what its first request to a fourth service costs. Figures are printed with
//! `-- --nocapture`; `NAVARCH_SERVICES` sets the size of the mesh.

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::client;
use navarch_testkit::wait::until_within;
use serde_json::Value;
use tokio::time::Instant;

use super::{OTHERS, TIMEOUT, World, active_clusters, mesh, service, until_routed};
use crate::pod::Pod;

/// The services of the mesh, unless the variable says otherwise.
const SERVICES: usize = 1_000;
/// Those that the workload uses.
const USED: [&str; 3] = ["service-0", "service-1", "service-2"];
const FOURTH: &str = "service-3";

/// What an Envoy holds.
#[derive(Debug)]
struct Held {
    clusters: usize,
    allocated_bytes: u64,
}

/// What an Envoy holds at the moment.
async fn held(pod: &Pod) -> Result<Held> {
    let (status, text) = pod.get(pod.admin, "/memory").await?;
    ensure!(status == 200, "/memory: {status}");
    let memory: Value = serde_json::from_str(&text)?;
    let allocated = memory["allocated"].as_str().context("allocated")?;
    Ok(Held {
        clusters: active_clusters(pod).await?.len(),
        allocated_bytes: allocated.parse()?,
    })
}

/// Sends a request to a service.
async fn call(world: &World, host: &str) -> Result<()> {
    let authority = format!("{host}.example");
    let reply = client::get(world.listener(), &authority, "/", &[]).await?;
    ensure!(reply.status == 200, "{host}: {reply:?}");
    Ok(())
}

#[tokio::test]
async fn an_envoy_holds_three_services_of_a_thousand_and_gets_a_fourth_at_once() -> Result<()> {
    let services = match std::env::var("NAVARCH_SERVICES") {
        Ok(text) => text.parse()?,
        Err(_) => SERVICES,
    };
    let world = World::start().await?;
    let all: String = (OTHERS..services)
        .map(|number| {
            let name = format!("service-{}", number - OTHERS);
            service(&name, world.port, world.reviews.address, "*")
        })
        .collect();
    world.server.write_mesh(&mesh(world.port, &all))?;

    let labels = [("app", "web"), ("navarch.io/scope", "whole")];
    let variables = [("POD_NAME", "web-9")];
    let mut whole_pod = Pod::start_as(&world.server, "sidecar", &labels, &variables)?;
    whole_pod.wait_ready().await?;
    let has_all = async || {
        let found = active_clusters(&whole_pod).await;
        found.is_ok_and(|found| found.len() == services)
    };
    until_within(TIMEOUT, "all clusters", has_all).await;
    let whole = held(&whole_pod).await?;
    ensure!(whole_pod.stop().await? == 0, "it exits with 0");

    let mut pod = Pod::start(&world.server, &[("POD_NAME", "web-2")])?;
    pod.wait_ready().await?;
    until_routed(&pod, FOURTH).await;
    for host in USED {
        call(&world, host).await?;
    }
    let learned = held(&pod).await?;
    ensure!(learned.clusters == USED.len(), "{learned:?}");
    ensure!(
        learned.allocated_bytes < whole.allocated_bytes,
        "{learned:?} {whole:?}"
    );

    let begun = Instant::now();
    call(&world, FOURTH).await?;
    println!("whole: {whole:?}");
    println!(
        "learned: {learned:?}, and a fourth service after {:?}",
        begun.elapsed()
    );
    ensure!(
        active_clusters(&pod).await?.len() == USED.len() + 1,
        "a fourth"
    );
    ensure!(pod.stop().await? == 0, "it exits with 0");
    Ok(())
}
