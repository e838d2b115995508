//! A Kubernetes cluster of three nodes in two zones (`scripts/cluster/worker`): the replicas of the
//! control plane on two of them, pods with sidecars on all, and pods of ztunnels if there is one.
//! Clients without retries count failed requests while a zone has no pods, while a node is lost as
//! by a power failure, and while it is drained.
//!
//! Needs root and the programs that `scripts/cluster/missing` checks; a test that cannot run is
//! skipped with a reason (`navarch_testkit::skip`).

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test may fail loudly, and print"
)]

mod ambient;
mod changes;
mod shop;
mod zones;

use std::path::{Path, PathBuf};

use anyhow::Result;
use navarch_testkit::mesh;
use navarch_testkit::node;
use navarch_testkit::skip;
use navarch_testkit::stages::Stages;

use ambient::{AmbientShop, Parts};
use shop::Shop;
use zones::Zones;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program that is built beside the tests.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_navarch")).with_file_name(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_several_nodes_no_request_fails_that_another_node_could_serve() -> Result<()> {
    if let Some(why) = node::missing(root()) {
        skip::skip(&why);
        return Ok(());
    }

    let parts = Parts::find();
    if parts.is_none() {
        skip::skip_test(ambient::MISSING);
    }

    let mut stages = Stages::default();
    let folder = tempfile::tempdir()?;
    let mut images = mesh::images(root(), &program("navarch"), folder.path())?;
    if let Some(parts) = &parts {
        images.extend(parts.images(folder.path())?);
    }
    stages.over("images");

    let images: Vec<&Path> = images.iter().map(AsRef::as_ref).collect();
    let zones = Zones::start(&images)?;
    drop(folder);
    stages.over("three nodes");

    zones.install(parts.is_some())?;
    zones.each_replica_has_its_own_node().await?;
    stages.over("control plane");

    zones.mesh.bookshop(root())?;
    zones.the_bookshop_spans_nodes().await?;
    stages.over("bookshop");

    let mut ambient = None;
    if let Some(parts) = &parts {
        parts.install(&zones.mesh)?;
        ambient = Some(AmbientShop::open(&zones).await?);
        stages.over("ztunnels");
    }

    let mut shop = Shop::open(&zones.mesh).await?;
    stages.over("shop");
    changes::a_zone_without_pods_is_served_by_the_other(&zones, &mut shop).await?;
    stages.over("failover");
    if let Some(ambient) = &mut ambient {
        ambient.a_zone_without_pods_is_served_by_the_other().await?;
        ambient.all_ztunnels_are_restarted().await?;
        stages.over("failover and restart of ztunnels");
    }

    changes::a_node_is_lost(&zones, &mut shop).await?;
    stages.over("node lost");
    if let Some(ambient) = &mut ambient {
        ambient.the_lost_node_is_avoided().await?;
        stages.over("node lost, ztunnels");
    }

    changes::the_lost_node_returns(&zones, &mut shop).await?;
    stages.over("node back");
    if let Some(ambient) = &mut ambient {
        ambient.the_lost_node_is_back().await?;
        stages.over("node back, ztunnels");
    }

    changes::a_node_is_drained(&zones, &mut shop).await?;
    stages.over("node drained");
    shop.verdict()?;
    match ambient {
        Some(ambient) => ambient.verdict().await,
        None => Ok(()),
    }
}
