//! One Helm release, upgraded from Istio's chart to this project's with the values that
//! `navarch preflight` writes, and back to Istio's chart, under traffic.
//!
//! Under Istio's chart runs the real istiod if `scripts/istiod` has built it. Otherwise Navarch runs
//! there, too, as in Istio's own suites: then the charts replace each other, not the programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use navarch_base::version::ISTIO_VERSION;
use navarch_testkit::istio;
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::node::Node;
use navarch_testkit::stages::Stages;

use crate::swap::{ISTIOD, Istiod, NAVARCH, Replacement, Swapped, install};
use crate::{program, root};

/// The release of Istio's chart.
const RELEASE: &str = "istiod";

/// Istio's charts, and what runs under them.
pub(crate) struct IstiosChart {
    istiod: Option<Istiod>,
    chart: PathBuf,
}

impl IstiosChart {
    /// That of the built istiod, or the one that `scripts/istio-chart` has fetched.
    pub(crate) fn find() -> Option<Self> {
        let istiod = Istiod::find();
        let of_istiod = istiod
            .as_ref()
            .map(|istiod| istiod.chart("istio-discovery"));
        let chart = of_istiod.or_else(|| istio::chart("istio-control/istio-discovery"))?;
        Some(Self { istiod, chart })
    }

    /// The image of the control plane under it, on a node that has it with the tag of tests: with
    /// that of a release, by which preflight tells which Istio it is.
    fn image(&self, mesh: &Mesh) -> Result<String> {
        let image = match &self.istiod {
            Some(_) => ISTIOD,
            None => NAVARCH,
        };
        let name = image.strip_suffix(mesh::TAG).context("a tag")?;
        let released = format!("{name}{ISTIO_VERSION}");
        mesh.node.tag(image, &released)?;
        Ok(released)
    }

    /// Installs the definitions of Istio's kinds: Istio's own, with its istiod.
    fn define_kinds(&self, mesh: &Mesh) -> Result<()> {
        if let Some(istiod) = &self.istiod {
            return mesh.install_chart("istio-base", &istiod.chart("base"), &[]);
        }
        let output = Command::new(program("navarch")).arg("crds").output()?;
        ensure!(output.status.success(), "{output:?}");
        mesh.node.apply(&String::from_utf8(output.stdout)?)
    }
}

/// Writes the values that keep the settings of the installation. Nothing has to be done first.
fn values(mesh: &Mesh, folder: &Path) -> Result<PathBuf> {
    let file = folder.join("values.yaml");
    let mut command = Command::new(program("navarch"));
    command
        .args(["preflight", "--kubeconfig"])
        .arg(mesh.node.kubeconfig())
        .arg("--values")
        .arg(&file);
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(file)
}

/// From Istio's chart to this one, back, and to this one again.
pub(crate) async fn take_over_and_return(istio: &IstiosChart) -> Result<()> {
    let mut stages = Stages::default();
    let folder = tempfile::tempdir()?;
    let mut images = mesh::images(root(), &program("navarch"), folder.path())?;
    if let Some(istiod) = &istio.istiod {
        images.push(istiod.image(folder.path())?);
    }
    let images: Vec<&Path> = images.iter().map(AsRef::as_ref).collect();
    let mesh = Mesh::on(root(), Node::start(root(), &images)?)?;
    drop(folder);
    stages.over("node");

    istio.define_kinds(&mesh)?;
    let image = istio.image(&mesh)?;
    install(&mesh, &istio.chart, &image)?;
    let folder = tempfile::tempdir()?;
    let values = values(&mesh, folder.path())?;
    let mut swapped = Swapped::start(mesh, stages).await?;

    let own = Replacement {
        what: "helm upgrade to this chart",
        image: NAVARCH,
        share: 100,
        version: "v2",
    };
    let back = Replacement {
        what: "helm upgrade to Istio's chart",
        image: &image,
        share: 0,
        version: "v1",
    };
    let take_over = |mesh: &Mesh| mesh.take_over(RELEASE, &values);
    swapped.replace(own, take_over).await?;
    let restore = |mesh: &Mesh| install(mesh, &istio.chart, &image);
    swapped.replace(back, restore).await?;
    swapped.replace(own, take_over).await?;
    swapped.verdict()
}
