//! Runs simulated Envoys against Navarch, or against the real istiod, which reads its mesh from a
//! real API server.
//!
//! `syncload PROGRAMS ROOT RESULT [--istiod FOLDER] ARGUMENTS...`: the directory with `navarch` and
//! `xdsload`, the checkout, the result file, the folder with istiod's `pilot-discovery` if that is
//! measured, and further arguments of `xdsload run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::{Cluster, ClusterConfig};
use navarch_testkit::istio::{Istiod, IstiodConfig};
use navarch_testkit::navarch::Navarch;

/// The arguments of `xdsload run` for the size of the mesh, which `xdsload generate` also gets.
const SIZES: [&str; 8] = [
    "--services",
    "--endpoints",
    "--namespaces",
    "--virtual-services",
    "--destination-rules",
    "--sidecars",
    "--policies",
    "--gateway-hosts",
];

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let mut path = || {
        args.next()
            .map(PathBuf::from)
            .context("usage: syncload PROGRAMS ROOT RESULT [--istiod FOLDER] ARGUMENTS...")
    };
    let programs = path()?;
    let root = path()?;

    let result = path()?;
    let mut args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let istiod = istiod_folder(&mut args)?;
    let cluster = Cluster::start_with(ClusterConfig::default()).await?;
    cluster.apply_crds(&root)?;
    let kubeconfig = cluster.admin_kubeconfig();
    let xdsload = |command: &str, args: &[String]| -> Result<()> {
        let mut xdsload = Command::new(programs.join("xdsload"));
        let status = xdsload
            .arg(command)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(args)
            .status()?;
        ensure!(status.success(), "xdsload {command} ended with {status}");
        Ok(())
    };

    let pairs = args
        .iter()
        .zip(args.iter().skip(1))
        .filter(|(name, _)| SIZES.contains(&name.as_str()));
    let sizes: Vec<String> = pairs
        .flat_map(|(name, value)| [name.clone(), value.clone()])
        .collect();
    xdsload("generate", &sizes)?;

    let mesh = root.join("deploy/samples/mesh.yaml");
    let measure = |xds: SocketAddr, pid: u32| -> Result<()> {
        let server = ["--server", &xds.to_string(), "--pid", &pid.to_string()].map(str::to_owned);
        let mut run = server.to_vec();
        run.extend(["--out".to_owned(), result.display().to_string()]);
        run.extend(args.iter().cloned());
        xdsload("run", &run)
    };

    if let Some(folder) = istiod {
        cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}")?;
        let log = result.with_extension("istiod.log");
        let config = IstiodConfig {
            folder: &folder,
            kubeconfig: &kubeconfig,
            mesh_config: &mesh,
            log: &log,
            variables: &[],
            has_tls: false,
        };
        let istiod = Istiod::start(config).await?;
        return measure(istiod.xds, istiod.pid());
    }

    let mesh = format!("--mesh-config={}", mesh.display());
    let navarch =
        Navarch::start_on_kubernetes(&programs.join("navarch"), &kubeconfig, &[&mesh], &[]).await?;
    measure(navarch.xds, navarch.pid())?;
    navarch.stop().await?;

    Ok(())
}

/// Removes `--istiod FOLDER` from the arguments.
fn istiod_folder(args: &mut Vec<String>) -> Result<Option<PathBuf>> {
    let Some(at) = args.iter().position(|arg| arg == "--istiod") else {
        return Ok(None);
    };
    ensure!(at + 1 < args.len(), "--istiod needs a folder");
    args.remove(at);
    Ok(Some(PathBuf::from(args.remove(at))))
}
