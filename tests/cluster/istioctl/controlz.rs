//! `istioctl dashboard controlz`: forwards the control plane's ControlZ pages.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use navarch_testkit::client as web;
use navarch_testkit::process::Process;
use navarch_testkit::{mesh, wait};

use super::Tool;

/// The pages of ControlZ are reachable at the printed address while the command runs.
pub(super) async fn its_pages_are_forwarded(tool: &Tool<'_>) -> Result<()> {
    let pod = format!("{}.{}", tool.istiod, mesh::NAMESPACE);
    let mut command = tool.program.on(
        &tool.kubeconfig,
        &["dashboard", "controlz", &pod, "--browser=false"],
    )?;
    let folder = tempfile::tempdir()?;
    command.stdout(Stdio::null());
    let words = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();

    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", words(name), words(value?))));
    let program = std::iter::once(words(command.get_program()));
    let line: Vec<String> = set
        .chain(program)
        .chain(command.get_args().map(words))
        .collect();

    let mut forwarded = Process::start(
        "istioctl",
        "/usr/bin/env".as_ref(),
        &line,
        &folder.path().join("log"),
    )?;

    wait::until("the port is forwarded", || async {
        forwarded.output().contains("http://")
    })
    .await;
    forwarded.check_running()?;
    let printed = forwarded.output();
    let place = printed
        .lines()
        .find_map(|line| line.strip_prefix("http://"))
        .context(printed.clone())?;

    // The command listens on both loopback addresses, or on the only one.
    let port = place.rsplit(':').next().unwrap_or_default();
    let address = format!("127.0.0.1:{port}").parse()?;
    let process = web::get(address, place, "/procj", &[]).await?;
    ensure!(
        process.status == 200 && process.body.contains("\"pid\":"),
        "{process:?}"
    );

    ensure!(web::get(address, place, "/scopez", &[]).await?.status == 200);
    ensure!(
        forwarded.stop(std::time::Duration::from_secs(10)).await?,
        "it exits on SIGTERM"
    );

    Ok(())
}
