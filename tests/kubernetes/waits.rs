//! `kubectl wait` and `navarch applied --wait` agree.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop;
use navarch_testkit::navarch::Navarch;
use tokio::task::spawn_blocking;

use super::edge::{self, Edge};
use super::replicas::Stream;
use super::{cluster, program};

/// The command `navarch applied` for the edited route.
fn applied(navarch: &Navarch, flags: &[&str]) -> Command {
    let mut command = Command::new(program());
    let address = format!("--address={}", navarch.monitoring);
    command
        .args(["applied", "virtualservice", "a", "-n", "edge", &address])
        .args(flags)
        .env_clear();
    command
}

/// The exit code of a command.
fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_wait_and_applied_give_the_same_answer() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let waits = |condition: &str, timeout: &str| {
        let mut command = Command::new(cluster.program("kubectl"));
        command
            .env("KUBECONFIG", cluster.admin_kubeconfig())
            .env("HOME", "/nonexistent");
        let condition = format!("--for=condition={condition}");
        let timeout = format!("--timeout={timeout}");
        command.args([
            "wait",
            "virtualservice/a",
            "--namespace=edge",
            &condition,
            &timeout,
        ]);

        command.stdin(Stdio::null());
        command
    };

    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let environment = [("PILOT_ENABLE_STATUS", "true"), ("POD_NAME", "leader")];
    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &environment)
            .await?;
    let mut proxy = Stream::open(navarch.xds).await?;
    proxy
        .route(&format!("http.{}", bookshop::GATEWAY.port()))
        .await?;

    let first = waits("Reconciled", "30s").output()?;
    ensure!(
        first.status.success(),
        "the proxy has acknowledged it: {first:?}"
    );
    ensure!(
        code(&applied(&navarch, &[]).output()?) == Some(0),
        "navarch agrees"
    );

    // The edit is sent, and not acknowledged yet.
    edge.answer("a", 202).await?;
    let response = proxy.response().await?;
    ensure!(
        response.type_url.ends_with("RouteConfiguration"),
        "{}",
        response.type_url
    );

    ensure!(
        code(&applied(&navarch, &[]).output()?) == Some(3),
        "it is pending"
    );
    let says_no = waits("Reconciled=False", "30s").output()?;
    ensure!(
        says_no.status.success(),
        "the condition agrees: {says_no:?}"
    );

    let in_vain = waits("Reconciled", "1s").output()?;
    let pending = applied(&navarch, &["--wait", "--timeout=1s"]).output()?;
    ensure!(
        !in_vain.status.success() && code(&pending) == Some(3),
        "both time out: {in_vain:?} {pending:?}"
    );

    // Both commands are waiting when the proxy acknowledges.
    let mut by_kubectl = waits("Reconciled", "30s");
    let mut by_navarch = applied(&navarch, &["--wait", "--timeout=30s"]);
    let waiting = [
        spawn_blocking(move || by_kubectl.output()),
        spawn_blocking(move || by_navarch.output()),
    ];
    proxy.acknowledge(&response).await?;

    for outcome in waiting {
        let outcome = outcome.await??;
        ensure!(outcome.status.success(), "the wait succeeds: {outcome:?}");
    }

    edge::eventually("the condition is that of the edit", async || {
        let object = edge
            .writer
            .get("/apis/networking.istio.io/v1/namespaces/edge/virtualservices/a")
            .await;
        object.is_ok_and(|object| {
            object["status"]["conditions"][0]["message"] == "1/1 proxies up to date."
        })
    })
    .await;
    drop(proxy);
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}
