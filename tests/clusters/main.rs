//! Two Kubernetes nodes (`scripts/cluster`), each its own cluster and network, in one mesh: two
//! control planes that read each other's cluster, then one that controls both. Pods communicate
//! through gateways between the networks; clients without retries count failed requests while pods
//! are deleted, while a cluster cannot be read, and while its Secret is changed and removed.
//!
//! Needs root and the programs that `scripts/cluster/missing` checks; a test that cannot run is
//! skipped with a reason (`navarch_testkit::skip`).

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail loudly, and print"
)]

mod istioctl;
mod pair;
mod primaries;
mod remote;
mod shop;

use std::path::{Path, PathBuf};

use anyhow::Result;
use navarch_testkit::node;
use navarch_testkit::stages::Stages;

use pair::Pair;
use shop::Shop;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program that is built beside the tests.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_navarch")).with_file_name(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_mesh_of_two_clusters_no_request_fails_that_a_live_endpoint_could_serve() -> Result<()>
{
    if let Some(why) = node::missing(root()) {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let mut stages = Stages::default();
    let pair = Pair::start()?;
    stages.over("two nodes");
    primaries::install(&pair).await?;
    stages.over("two control planes");
    let mut shop = Shop::open(&pair).await?;
    stages.over("the shop in both");

    primaries::requests_go_through_the_gateways_with_mutual_tls(&pair, &mut shop).await?;
    stages.over("both answer");
    istioctl::remote_clusters(&pair)?;
    shop.stay_local(&pair).await?;
    shop.fails_over(&pair, &pair.west, &pair.east).await?;
    stages.over("failover");
    primaries::the_other_cluster_is_cut_off(&pair, &mut shop).await?;
    stages.over("cut off");

    primaries::the_secret_is_rotated_and_removed(&pair, &mut shop).await?;
    stages.over("rotated and removed");

    remote::one_control_plane_for_both(&pair, &mut shop).await?;
    stages.over("primary and remote");
    for (from, to) in [(&pair.east, &pair.west), (&pair.west, &pair.east)] {
        shop.fails_over(&pair, from, to).await?;
    }

    stages.over("failover of both");
    shop.verdict()
}
