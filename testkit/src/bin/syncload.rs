//! Runs simulated Envoys against Navarch, which reads its mesh from a real API server.
//!
//! `syncload PROGRAMS ROOT RESULT ARGUMENTS...`: the directory with `navarch` and `xdsload`, the
//! checkout, the result file, and further arguments of `xdsload run`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::{Cluster, ClusterConfig};
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
            .context("usage: syncload PROGRAMS ROOT RESULT ARGUMENTS...")
    };
    let programs = path()?;
    let root = path()?;

    let result = path()?;
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
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

    let mesh = format!(
        "--mesh-config={}",
        root.join("deploy/samples/mesh.yaml").display()
    );
    let navarch =
        Navarch::start_on_kubernetes(&programs.join("navarch"), &kubeconfig, &[&mesh], &[]).await?;
    let mut run: Vec<String> = [
        "--server",
        &navarch.xds.to_string(),
        "--pid",
        &navarch.pid().to_string(),
        "--out",
    ]
    .map(str::to_owned)
    .to_vec();
    run.push(result.display().to_string());
    run.extend(args);
    xdsload("run", &run)?;
    navarch.stop().await?;

    Ok(())
}
