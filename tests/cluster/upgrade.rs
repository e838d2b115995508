//! `helm upgrade` from the previous chart to this one, and `helm rollback`, under traffic.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::{self, Mesh};

use crate::changes::{AFTER, restart, settled, sidecar};
use crate::root;
use crate::traffic::{all_see, split};
use crate::watched::Watched;

/// The release, of two replicas.
const RELEASE: &str = "navarch";
const REPLICAS: &str = "replicaCount=2";
/// The tag of the images that the upgrade brings.
const NEXT: &str = "next";
/// The version of the previous chart if it is a copy of this one.
const COPIED_VERSION: &str = "0.0.1";

/// The chart of the previous release: `NAVARCH_PREVIOUS_CHART`, or a copy of this one with another
/// version.
fn previous_chart(folder: &Path) -> Result<PathBuf> {
    if let Some(chart) = std::env::var_os("NAVARCH_PREVIOUS_CHART") {
        return Ok(chart.into());
    }

    let copy = folder.join("navarch");
    let copied = Command::new("cp")
        .arg("--recursive")
        .arg(root().join("deploy/charts/navarch"))
        .arg(&copy)
        .status()?;
    ensure!(copied.success(), "the chart cannot be copied");

    let file = copy.join("Chart.yaml");
    let lines = std::fs::read_to_string(&file)?;
    let lines: Vec<String> = lines
        .lines()
        .map(|line| match line.split_once(": ") {
            Some((name @ ("version" | "appVersion"), _)) => format!("{name}: {COPIED_VERSION}"),
            _ => line.to_owned(),
        })
        .collect();
    std::fs::write(&file, lines.join("\n"))?;
    Ok(copy)
}

/// The image of the control plane's Deployment.
fn control_plane(mesh: &Mesh) -> Result<String> {
    let deployment = mesh.node.get(mesh::NAMESPACE, &["deployment", "istiod"])?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    Ok(container["image"].as_str().context("an image")?.to_owned())
}

/// A change of the release, and a change of a route after it.
struct Step<'a> {
    what: &'a str,
    /// The tag of the images.
    tag: &'a str,
    /// The percentage of requests for the new reviews, and the version that readers see then.
    share: u32,
    version: &'a str,
}

/// Waits until the control plane runs images with a tag, replaces pods, which then have the proxy
/// of that tag, and changes a route.
async fn takes_over(mesh: &Mesh, watched: &mut Watched, step: &Step<'_>) -> Result<()> {
    let Step {
        what,
        tag,
        share,
        version,
    } = step;
    settled(mesh, mesh::NAMESPACE).await?;
    let image = control_plane(mesh)?;
    ensure!(
        image == format!("localhost/navarch:{tag}"),
        "{what}: the control plane is {image}"
    );
    watched.count_lost(what, AFTER).await?;

    restart(mesh, pods::NAMESPACE, &["catalog-v1"]).await?;
    let proxy = sidecar(mesh, "app=catalog")?;
    let image = &proxy["image"];
    ensure!(
        *image == format!("localhost/navarch-proxy:{tag}"),
        "{what}: the sidecar is {image}"
    );

    split(mesh, *share)?;
    all_see(mesh, version).await?;
    watched
        .count_lost(&format!("{what}, new sidecars"), AFTER)
        .await
}

/// To the previous chart, to this one with other images, back, and to this one again.
pub(crate) async fn an_upgrade_and_its_rollback(mesh: &Mesh, watched: &mut Watched) -> Result<()> {
    for image in ["localhost/navarch", "localhost/navarch-proxy"] {
        mesh.node.tag(
            &format!("{image}:{}", mesh::TAG),
            &format!("{image}:{NEXT}"),
        )?;
    }
    let folder = tempfile::tempdir()?;
    let previous = previous_chart(folder.path())?;
    let next_tag = format!("global.tag={NEXT}");

    mesh.install_from(&previous, RELEASE, &[REPLICAS])?;
    settled(mesh, mesh::NAMESPACE).await?;
    watched.count_lost("the previous chart", AFTER).await?;

    mesh.install(RELEASE, &[REPLICAS, &next_tag])?;
    let upgraded = Step {
        what: "helm upgrade",
        tag: NEXT,
        share: 100,
        version: "v2",
    };
    takes_over(mesh, watched, &upgraded).await?;

    mesh.roll_back(RELEASE)?;
    let rolled_back = Step {
        what: "helm rollback",
        tag: mesh::TAG,
        share: 0,
        version: "v1",
    };
    takes_over(mesh, watched, &rolled_back).await?;

    mesh.install(RELEASE, &[REPLICAS, &next_tag])?;
    let again = Step {
        what: "helm upgrade again",
        ..upgraded
    };
    takes_over(mesh, watched, &again).await
}
