//! A Kubernetes cluster for manual use: a node with Navarch and the bookshop in pods, or an API
//! server only.
//!
//! `cluster NAVARCH [ROOT]`: the program, and the checkout. The node continues to run afterwards
//! (`make cluster-down`); without root or containerd there is an API server with the sample's
//! objects until Ctrl-C.

#![expect(
    clippy::print_stdout,
    reason = "the program prints how to use the cluster"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "an interactive program may read the environment"
)]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use navarch_testkit::bookshop::{kubernetes, pods};
use navarch_testkit::cluster::{self, Cluster, ClusterConfig};
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::node::{self, Node};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<()> {
    let navarch = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .context("usage: cluster NAVARCH [ROOT]")?;
    let root = std::env::args_os()
        .nth(2)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let begun = Instant::now();
    match node::missing(&root) {
        None => pods_on_a_node(&navarch, &root, begun),
        Some(why) => {
            println!("# no node, so no pods: {why}");
            api_server(&root, begun).await
        }
    }
}

/// The node: started, or reused.
fn pods_on_a_node(navarch: &Path, root: &Path, begun: Instant) -> Result<()> {
    let folder = std::env::var_os("NAVARCH_CLUSTER").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/navarch/cluster"));
    let folder = folder
        .or(home)
        .context("neither NAVARCH_CLUSTER nor HOME is set")?;
    let images = mesh::images(root, navarch, &folder.join("images"))?;
    let mesh = Mesh::on(root, Node::keep(root, &folder, &[])?)?;

    // An existing cluster has loaded older images.
    for image in &images {
        mesh.node.load(image)?;
    }

    mesh.install("navarch", &[])?;
    mesh.bookshop(root)?;
    let gateway = mesh.service(pods::GATEWAY, pods::GATEWAY, 80)?;
    println!(
        "# Navarch and the bookshop on a node, up after {:.1} s; `make cluster-down` ends it",
        begun.elapsed().as_secs_f64()
    );
    println!("export KUBECONFIG={}", mesh.node.kubeconfig().display());

    println!("export PATH={}:$PATH", cluster::programs()?.display());
    println!("# kubectl get pods -A");
    println!(
        "# curl --header 'Host: {}' http://{gateway}/reviews",
        pods::HOST
    );

    Ok(())
}

/// The API server, with the sample's objects, and backends outside of it.
async fn api_server(root: &Path, begun: Instant) -> Result<()> {
    // The sample contains its EndpointSlices.
    let controllers = ["namespace-controller", "serviceaccount-controller"];
    let config = ClusterConfig {
        controllers: controllers.map(str::to_owned).to_vec(),
        ..ClusterConfig::default()
    };
    let cluster = Cluster::start_with(config).await?;
    cluster.apply_crds(root)?;

    let writer = cluster.writer().await?;
    let machine = kubernetes::machine_address()?;
    for object in kubernetes::objects(root, machine)? {
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
