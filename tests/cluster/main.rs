//! Navarch on a real Kubernetes node (`scripts/cluster`): installed by its chart, with sidecars and
//! a gateway that a kubelet runs. Requests verify the behaviour of the mesh; while it changes,
//! clients without retries count failed requests.
//!
//! Needs root and the programs that `scripts/cluster/missing` checks; a test that cannot run is
//! skipped with a reason (`navarch_testkit::skip`). `make soak` sets `NAVARCH_CLUSTER_SECONDS`: the
//! duration of the API server's outage, and of counting after each change; and
//! `NAVARCH_UPGRADE_REQUESTS`: the requests while Envoys are replaced in place.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test may fail loudly, print, and read its switches from the environment"
)]

mod answers;
mod asked;
mod changes;
mod charts;
mod in_place;
mod injected;
mod istioctl;
mod locks;
mod scopes;
mod swap;
mod traffic;
mod upgrade;
mod watched;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::node::{self, Node};
use navarch_testkit::stages::Stages;
use tokio::sync::Mutex;

use watched::Watched;

/// Locked by the test whose node runs: the machine has room for one node.
static ONE_NODE: Mutex<()> = Mutex::const_new(());

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program that is built beside the tests.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_navarch")).with_file_name(name)
}

/// The duration of the API server's outage, and of counting after a change.
fn seconds(otherwise: u64) -> Duration {
    let set = std::env::var("NAVARCH_CLUSTER_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(otherwise))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mesh_on_a_real_node_works_and_no_request_fails_while_it_changes() -> Result<()> {
    if let Some(why) = node::missing(root()) {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let _turn = ONE_NODE.lock().await;
    let mut stages = Stages::default();
    let folder = tempfile::tempdir()?;
    let images = mesh::images(root(), &program("navarch"), folder.path())?;
    stages.over("images");
    let images: Vec<&Path> = images.iter().map(AsRef::as_ref).collect();
    let mut mesh = Mesh::on(root(), Node::start(root(), &images)?)?;
    drop(folder);

    stages.over("node");
    mesh.install("navarch", &[])?;
    stages.over("helm install");
    mesh.bookshop(root())?;
    stages.over("bookshop ready");

    injected::pods_are_as_a_kubelet_runs_them(&mesh)?;
    injected::a_job_ends_although_it_has_a_sidecar(&mesh)?;
    stages.over("pods");
    asked::commands_find_the_control_plane_by_the_kubeconfig(&mesh).await?;
    stages.over("commands");
    answers::plan_rollout_why_and_quarantine_work_on_a_real_node(&mesh).await?;
    stages.over("answers");
    istioctl::istioctl_sees_an_istiod(&mesh).await?;

    stages.over("istioctl");
    traffic::the_shop_is_reached_through_the_gateway(&mesh).await?;
    traffic::a_fault_and_a_policy_are_obeyed(&mesh).await?;
    traffic::pods_communicate_encrypted(&mesh).await?;
    stages.over("traffic");

    lose_no_request_during_changes(&mut mesh, &mut stages).await
}

/// Clients count failed requests during a series of changes; all failures are reported at the end.
async fn lose_no_request_during_changes(mesh: &mut Mesh, stages: &mut Stages) -> Result<()> {
    let mut watched = Watched::start(mesh).await?;
    stages.over("clients");
    scopes::a_sidecar_is_suggested_from_what_pods_have_counted(mesh, &mut watched).await?;
    stages.over("scope");
    let leader = changes::a_leader_is_killed(mesh, &mut watched).await?;
    stages.over("leader killed");
    asked::applied_queries_every_replica(mesh)?;
    istioctl::every_replica_answers(mesh)?;
    changes::rolling_restart(mesh, &mut watched).await?;
    stages.over("rolling restart");

    changes::scale_up_and_down(mesh, &mut watched).await?;
    stages.over("scale");
    changes::another_leads(mesh, &leader).await;
    changes::the_api_server_is_down(mesh, &mut watched).await?;
    stages.over("API server away");
    upgrade::an_upgrade_and_its_rollback(mesh, &mut watched).await?;
    stages.over("helm upgrade and rollback");
    changes::a_canary_by_revision_and_tag(mesh, &mut watched).await?;

    stages.over("canary");
    changes::the_node_is_started_again(mesh, &mut watched).await?;
    stages.over("reboot");
    watched.verdict()?;
    no_request_is_denied(mesh)
}

/// The chart grants every right that the control plane has used in all stages.
fn no_request_is_denied(mesh: &Mesh) -> Result<()> {
    let denied = mesh.node.denied_requests()?;
    ensure!(denied.is_empty(), "denied requests:\n{denied}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn istiod_is_replaced_by_navarch_and_back_without_failed_requests() -> Result<()> {
    if let Some(why) = node::missing(root()) {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }
    let Some(istiod) = swap::Istiod::find() else {
        navarch_testkit::skip::skip_test("scripts/istiod builds istiod");
        return Ok(());
    };
    let _turn = ONE_NODE.lock().await;
    swap::replace_and_restore(&istiod).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_istios_chart_becomes_this_chart_and_back_without_failed_requests()
-> Result<()> {
    if let Some(why) = node::missing(root()) {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }
    let Some(istio) = charts::IstiosChart::find() else {
        navarch_testkit::skip::skip(
            "Istio's chart is missing: run `make tools` (scripts/istio-chart)",
        );
        return Ok(());
    };
    let _turn = ONE_NODE.lock().await;
    charts::take_over_and_return(&istio).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoys_are_replaced_in_running_pods_without_failed_requests() -> Result<()> {
    if let Some(why) = node::missing(root()) {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }
    let _turn = ONE_NODE.lock().await;
    in_place::replacements_lose_no_request().await
}
