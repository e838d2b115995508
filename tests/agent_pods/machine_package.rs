//! A machine outside of the cluster with the Debian package `navarch-agent`: dpkg installs it, and
//! the commands of its unit run it, with the files of `istioctl x workload entry configure`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::wait::until;

use crate::machine::{
    check_calls, cluster_variables, entry_path, mesh_config, objects, wait_registered,
};
use crate::pod::{Environment, Pod, PodFiles, PodInputs, log, spawn_app, within};
use crate::world::{MACHINE, World};
use crate::{LONG, missing};

/// How long its agent may take to end, with Envoy.
const END: Duration = Duration::from_secs(20);

/// Why the test cannot run here; `None` if it can.
fn reason_to_skip() -> Option<String> {
    let program = ["dpkg", "unshare", "objcopy", "python3"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err());
    let overlay = || {
        let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let has = filesystems.contains("overlay");
        (!has).then(|| "the kernel has no overlay file system".to_owned())
    };
    let missing_program = program.map(|program| format!("{program} is not installed"));
    missing().or(missing_program).or_else(overlay)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_joins_by_the_debian_package() -> Result<()> {
    if let Some(why) = reason_to_skip() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let mut world = World::start().await?;
    for object in objects() {
        world.writer().put(&object).await?;
    }
    let package = pack(world.folder())?;
    let client = world.pod("client", LONG).await?;
    let web = world.pod("web", LONG).await?;

    let space = world.space(MACHINE)?;
    let inputs = world.machine_inputs().await?;
    let machine = install(&world, &space, inputs, &package)?;
    for pod in [&client, &web, &machine] {
        pod.wait_ready().await?;
    }

    wait_registered(&world, &machine).await?;
    check_calls(&client, &machine).await?;
    ensure!(machine.has("certs/cert-chain.pem"), "no certificate");
    ensure!(is_captured(&space)?, "its traffic is not captured");

    ensure!(machine.terminate(END).await?, "the service does not end");
    ensure!(!is_captured(&space)?, "rules are left: {}", machine.log());
    let path = entry_path(&machine);
    until("its entry is deleted", async || {
        world
            .writer()
            .get(&path)
            .await
            .unwrap_or_default()
            .is_null()
    })
    .await;
    Ok(())
}

/// Makes the package of the built agent.
fn pack(folder: &Path) -> Result<PathBuf> {
    let programs = folder.join("programs");
    std::fs::create_dir(&programs)?;
    std::fs::hard_link(folder.join("pilot-agent"), programs.join("pilot-agent"))?;
    // A small program stands for `navarch`, which the package does not have, and for Envoy, which
    // the machine mounts over it.
    let placeholder = programs.join("navarch");
    std::fs::copy("/usr/bin/env", &placeholder)?;

    let out = folder.join("artefacts");
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(checkout.join("scripts/dist"))
        .args(["--allow-changes", "--parts", "deb"])
        .arg("--out")
        .arg(&out)
        .arg("--programs")
        .arg(&programs)
        .arg("--envoy")
        .arg(&placeholder)
        .output()?;
    ensure!(made.status.success(), "{made:?}");

    let mut packages = std::fs::read_dir(out.join("debian"))?;
    Ok(packages.next().context("no package")??.path())
}

/// Starts a machine with the package and istioctl's files.
fn install(world: &World, space: &str, inputs: PodInputs, package: &Path) -> Result<Pod> {
    let PodInputs {
        ip,
        envoy,
        token,
        root,
        ..
    } = inputs;

    let folder = world.folder().join(MACHINE);
    for name in ["disk", "log", "certs"] {
        std::fs::create_dir_all(folder.join(name))?;
    }
    let etc = Path::new("/etc/netns").join(space);
    let packaged_envoy = Path::new("/usr/local/bin/envoy");
    for (name, text) in [
        ("cluster.env", shell_assignments(cluster_variables(ip))),
        ("mesh.yaml", mesh_config(packaged_envoy).to_string()),
        ("root-cert.pem", root),
        ("istio-token", token),
        ("hosts", std::fs::read_to_string(etc.join("hosts"))?),
        (
            "resolv.conf",
            std::fs::read_to_string(etc.join("resolv.conf"))?,
        ),
    ] {
        std::fs::write(folder.join(name), text)?;
    }

    let mut service = within(space, &folder);
    service
        .args(["unshare", "--mount", "--propagation", "private", "sh"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent_pods/machine_package.sh"))
        .arg(package)
        .arg(&folder)
        .arg(envoy)
        .stdout(log(&folder, "agent.log")?)
        .stderr(log(&folder, "agent.log")?);
    let service = service.spawn().context("cannot start the machine")?;
    let app = spawn_app(space, MACHINE, &folder, world.folder())?;

    let logs = ["agent.log", "log/istio.log", "log/istio.err.log"];
    let files = PodFiles {
        name: MACHINE,
        ip,
        logs: logs.map(|name| folder.join(name)).to_vec(),
        folder,
    };
    Pod::of(files, service, Some(app))
}

/// The variables as istioctl writes them.
fn shell_assignments(variables: Environment) -> String {
    let line = |(name, value): (String, String)| format!("{name}='{value}'\n");
    variables.into_iter().map(line).collect()
}

/// Whether iptables rules capture the traffic of a network namespace.
fn is_captured(space: &str) -> Result<bool> {
    let mut rules = within(space, Path::new("/"));
    let output = rules.arg("iptables-save").output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).contains("ISTIO"))
}
