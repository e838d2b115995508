//! A namespace moves from sidecars to ambient mode by `navarch migrate apply`, step by step, while
//! clients send requests: real Envoys as sidecars and as the waypoint, and a real ztunnel. Before the
//! first step the walker (`navarch why not`) gives a verdict on each kind of request; no response
//! may differ from it, and none may be missing.
//!
//! Three meshes: policies about identities alone, policies about requests, and DENY with routes of a
//! VirtualService. `NAVARCH_MIGRATION_REQUESTS` is the number of requests of all three together.

mod callers;
mod meshes;
mod moving;

use anyhow::{Context as _, Result, bail, ensure};
use navarch_testkit::istio;
use tokio::task::JoinSet;

use crate::missing;
use crate::pod::send_command;
use callers::{Expected, Request, Sent};
use meshes::MESHES;
use moving::Moving;

/// The requests of all meshes if the variable is not set.
const REQUESTS: u64 = 3_000;
/// The number of answered requests that meet the mesh as it is between two steps.
const BETWEEN_STEPS: u64 = 60;
/// More than any plan has.
const MAX_STEPS: usize = 15;

/// The number of requests in one mesh.
fn requests() -> Result<u64> {
    let all = match std::env::var("NAVARCH_MIGRATION_REQUESTS") {
        Ok(text) => text.parse().context("NAVARCH_MIGRATION_REQUESTS")?,
        Err(_) => REQUESTS,
    };
    Ok(all.div_ceil(u64::try_from(MESHES.len())?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_gets_another_verdict_while_a_namespace_moves() -> Result<()> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }
    let Some(ztunnel) = istio::ztunnel() else {
        navarch_testkit::skip::skip_test("NAVARCH_ZTUNNEL is not set to a built ztunnel");
        return Ok(());
    };

    let count = requests()?;
    for mesh in MESHES {
        let moving = Moving::start(mesh, &ztunnel).await?;
        moves_under_requests(moving, count)
            .await
            .with_context(|| mesh.name)?;
    }
    Ok(())
}

/// Moves a namespace while all callers send requests, at least `count`.
async fn moves_under_requests(mut moving: Moving, count: u64) -> Result<()> {
    moving.wait_served().await?;
    let expected = moving.verdicts().await?;
    check_variety(&expected)?;

    let goes_on = moving.begin()?;
    let callers: Vec<&str> = moving.callers().collect();
    let share = count.div_ceil(u64::try_from(callers.len())?);
    let mut sending = JoinSet::new();
    for caller in callers {
        let order = callers::order(caller, &expected, share, &goes_on);
        let socket = moving.socket(caller)?;
        sending.spawn(async move { send_command(&socket, &order).await });
    }

    let moved = apply_all(&mut moving).await;
    std::fs::remove_file(&goes_on)?;
    moved?;
    let mut sent = Sent::default();
    while let Some(outcome) = sending.join_next().await {
        sent.add(&outcome??)?;
    }

    println!("{}: {sent:?}", moving.mesh.name);
    ensure!(
        sent.other.is_empty(),
        "requests were lost, or had another verdict: {:?}\n{}",
        sent.other,
        moving.output()
    );
    ensure!(sent.total >= count, "{} of {count} requests", sent.total);
    let after = moving.verdicts().await?;
    ensure!(after == expected, "{after:?} after {expected:?}");
    Ok(())
}

/// A mesh in which all requests had the same verdict would show nothing.
fn check_variety(expected: &[(Request, Expected)]) -> Result<()> {
    let has = |wanted: Expected| expected.iter().any(|(_, found)| *found == wanted);
    ensure!(
        has(Expected::Status(200)) && has(Expected::Refused),
        "{expected:?}"
    );
    Ok(())
}

/// Does all steps, and what a cluster does after each.
async fn apply_all(moving: &mut Moving) -> Result<()> {
    for _ in 0..MAX_STEPS {
        moving.wait_answered(BETWEEN_STEPS).await?;
        let Some(step) = moving.apply().await? else {
            return moving.check_moved();
        };
        println!("{}: {step}", moving.mesh.name);
        moving.follow(&step).await?;
    }
    bail!("more than {MAX_STEPS} steps")
}
