//! A Kubernetes control plane for a person: API server with the sample mesh, until Ctrl-C.
//!
//! `cluster [ROOT]`: the checkout with `deploy/samples`.

#![expect(clippy::print_stdout, reason = "telling the person what there is is what it is for")]

use std::path::PathBuf;

use anyhow::Result;
use navarch_testkit::bookshop::kubernetes;
use navarch_testkit::cluster::{Cluster, ClusterConfig};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<()> {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let begun = Instant::now();
    // The sample has its endpoints itself.
    let controllers = ["namespace-controller", "serviceaccount-controller"];
    let config = ClusterConfig { controllers: controllers.map(str::to_owned).to_vec(), ..ClusterConfig::default() };
    let cluster = Cluster::start_with(config).await?;
    cluster.apply_crds(&root)?;
    let writer = cluster.writer().await?;
    let machine = kubernetes::machine_address()?;
    for object in kubernetes::objects(&root, machine)? {
        writer.put(&object).await?;
    }
    let backends = kubernetes::backends(machine).await?;
    println!(
        "# a Kubernetes API server with the bookshop ({} backends), up after {:.1} s; Ctrl-C ends it",
        backends.len(),
        begun.elapsed().as_secs_f64()
    );
    println!("export KUBECONFIG={}", cluster.admin_kubeconfig().display());
    println!("export PATH={}:$PATH", cluster.program("").display());
    println!("# kubectl get virtualservices -A");
    println!("# navarch discovery --kubeconfig $KUBECONFIG");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
