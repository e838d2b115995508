//! Clients that attack the control plane and the agent, while the service of well-behaved clients
//! must not suffer.
//!
//! The tests use the `navarch` binary, real sockets, TLS and a real API server. Each test runs
//! itself again in a new network namespace with 10.77.0.0/16 on its loopback device, so that every
//! client has its own address. Needs `unshare` and `ip`; the test of the API server needs the
//! programs of `make tools`, the test of the agent Envoy.
//!
//! `NAVARCH_BIN=target/release/navarch cargo test --test hostile_clients -- --nocapture` prints the
//! figures of another build; `NAVARCH_ATTACKS='idle connections,many hosts'` runs only these
//! attacks; `NAVARCH_ATTACK_SECONDS=30` sets the duration of the measurement before the first
//! attack and of each attack, for figures that do not depend on a single slow response.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

mod agent;
mod api_server;
mod attack;
mod collisions;
mod connections;
mod debug;
mod files;
mod grpc;
mod limits;
mod network;
mod on_demand;
mod others;
mod plane;
mod proxies;
mod quarantine;
mod report;
mod series;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::wait::until;
use navarch_tests::{any_certificate, issuer, pod, server};
use serde_json::json;

use attack::Attack;
use plane::Plane;
use report::{Expect, Report};

/// The duration of the measurement of well-behaved clients before the first attack, and of each
/// attack.
const MEASURED: Duration = Duration::from_secs(6);
/// How long an unfinished message and a silent stream may stay open: the server's limits are 30 s
/// and 10 s.
const CLOSED_WITHIN: Duration = Duration::from_secs(45);

#[test]
fn well_behaved_clients_are_served_while_others_attack() -> Result<()> {
    network::run(
        "well_behaved_clients_are_served_while_others_attack",
        attacks,
    )
}

/// Attacks by whoever may write to the configuration directory.
async fn attacks_by_files(report: &mut Report, plane: &Plane, time: Duration) -> Result<()> {
    let folder = plane.mesh();
    report
        .during("many hosts", Expect::nothing(), move || {
            files::many_hosts(folder, time)
        })
        .await?;

    let folder = plane.mesh();
    report
        .during("endless device", Expect::nothing(), move || {
            files::device(folder, time)
        })
        .await?;

    let folder = plane.mesh();
    report
        .during("FIFO", Expect::nothing(), move || files::fifo(folder, time))
        .await
}

/// Attacks by subscriptions to many names; `token` is that of a workload.
async fn attacks_by_names(
    report: &mut Report,
    plane: &Plane,
    token: String,
    time: Duration,
) -> Result<()> {
    let proved = token.clone();
    let evil = token.clone();
    report
        .during("hash collisions", Expect::nothing(), move || {
            streams::one_hash(proved, time)
        })
        .await?;

    report
        .during("alternating subscriptions", Expect::nothing(), move || {
            streams::alternating(token, time)
        })
        .await?;

    let folder = plane.mesh();
    let tokens = on_demand::Tokens {
        evil,
        victim: plane.issuer.token(json!({})),
    };
    report
        .during("clusters on demand", Expect::nothing(), move || {
            on_demand::many_names(folder, tokens, time)
        })
        .await
}

/// Runs one attack after the other against one server.
async fn attacks() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let token = plane
        .issuer
        .token(json!({"sub": "system:serviceaccount:shop:evil"}));
    let time = match std::env::var("NAVARCH_ATTACK_SECONDS") {
        Ok(seconds) => Duration::from_secs(seconds.parse().context("NAVARCH_ATTACK_SECONDS")?),
        Err(_) => MEASURED,
    };

    let mut report = Report::start(plane.clone()).await?;
    report.before(time).await?;

    // The server must close these streams while the other attacks run.
    let waiting =
        Attack::start(move || streams::never_finished(CLOSED_WITHIN + Duration::from_secs(30)));

    attacks_by_names(&mut report, &plane, token, time).await?;

    let expect = Expect {
        metrics_growth: Some(64 << 10),
        ..Expect::nothing()
    };

    report
        .during("long versions", expect, move || {
            streams::long_versions(time)
        })
        .await?;

    let expect = Expect {
        rejected: Some("grpc"),
        peak_kb: Some(192 << 10),
        ..Expect::nothing()
    };

    report
        .during("half messages", expect, move || {
            streams::half_messages(time)
        })
        .await?;

    report
        .during("idle connections", Expect::rejected("https"), move || {
            connections::idle(time)
        })
        .await?;

    report
        .during("announced bodies", Expect::nothing(), move || {
            connections::announced(time)
        })
        .await?;

    report
        .during(
            "silent handshakes",
            Expect::rejected("secure-grpc"),
            move || connections::silent(time),
        )
        .await?;

    report
        .during("slow readers", Expect::rejected("http"), move || {
            connections::slow_readers(time)
        })
        .await?;
    attacks_by_files(&mut report, &plane, time).await?;

    let closed = waiting.end().await;
    report.print();
    ensure!(
        closed.is_ok(),
        "streams that are never finished: {closed:?}"
    );
    println!("{}", closed?);
    report.judge().await?;
    drop(report);

    // Aborted tasks release it only when the runtime polls them.
    until("only the test holds the control plane", async || {
        Arc::strong_count(&plane) == 1
    })
    .await;
    let plane = Arc::into_inner(plane).expect("no other reference is left");
    let log = plane.navarch.output();
    ensure!(
        plane.navarch.stop().await?,
        "navarch exits on SIGTERM:\n{log}"
    );

    Ok(())
}
