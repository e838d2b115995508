//! Istio's own chart with istiod, whose image alone is replaced by Navarch's and back, under
//! traffic.
//!
//! The sidecars are stock Envoys, so Istio's own filters are disabled by settings that both control
//! planes support.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::node::Node;
use navarch_testkit::stages::Stages;
use navarch_testkit::wait;
use serde_json::Value;

use crate::changes::{AFTER, restart, settled};
use crate::locks::Locks;
use crate::traffic::{all_see, split};
use crate::watched::Watched;
use crate::{program, root};

/// The image of istiod in the cluster.
pub(crate) const ISTIOD: &str = "localhost/pilot:test";
pub(crate) const NAVARCH: &str = "localhost/navarch:test";
/// The Deployment whose pods start anew after each replacement.
const RESTARTED: &str = "catalog-v1";

/// The directory with istiod and its charts, as `scripts/istiod` builds them.
pub(crate) struct Istiod(PathBuf);

impl Istiod {
    /// From `NAVARCH_ISTIOD`, or from the tools' directory.
    pub(crate) fn find() -> Option<Self> {
        navarch_testkit::istio::istiod().map(Self)
    }

    /// A chart of Istio's.
    pub(crate) fn chart(&self, name: &str) -> PathBuf {
        self.0.join("charts").join(name)
    }

    /// Builds its image with the entry point of Istio's own.
    pub(crate) fn image(&self, out: &Path) -> Result<PathBuf> {
        let files = out.join("pilot");
        let archive = out.join("pilot.tar");
        let run = |command: &mut Command| -> Result<()> {
            let output = command.output()?;
            ensure!(
                output.status.success(),
                "{command:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(())
        };

        let made = root().join("scripts/image-root");
        run(Command::new(made)
            .arg("program")
            .arg(&files)
            .arg(self.0.join("pilot-discovery")))?;
        let mut pack = Command::new(root().join("scripts/oci-image"));
        pack.arg(&archive).args([
            "--name",
            ISTIOD,
            "--user=1337:1337",
            "--entrypoint=/usr/local/bin/pilot-discovery",
        ]);

        run(pack.arg("--root").arg(&files))?;
        Ok(archive)
    }
}

/// Installs Istio's chart with this image as the control plane.
pub(crate) fn install(mesh: &Mesh, chart: &Path, image: &str) -> Result<()> {
    let image = format!("image={image}");
    let set = [
        image.as_str(),
        "global.hub=localhost",
        "global.tag=test",
        "global.imagePullPolicy=IfNotPresent",
        "global.proxy.image=navarch-proxy",
        "global.proxy_init.image=navarch-proxy",
        "global.proxy.resources.requests.cpu=10m",
        "global.proxy.resources.requests.memory=40Mi",
        "autoscaleEnabled=false",
        "resources.requests.cpu=20m",
        "resources.requests.memory=64Mi",
        "telemetry.enabled=false",
        "env.PILOT_ENABLE_METADATA_EXCHANGE=false",
        "env.PILOT_ENABLE_ALPN_FILTER=false",
    ];

    mesh.install_chart("istiod", chart, &set)
}

/// The serial numbers of the certificates of all proxies, by pod.
fn certificates(mesh: &Mesh) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut serials = BTreeMap::new();

    for namespace in [pods::NAMESPACE, pods::GATEWAY] {
        let list = mesh.node.get(namespace, &["pods"])?;
        for pod in list["items"].as_array().context("a list")? {
            let name = pod["metadata"]["name"].as_str().context("a name")?;
            let ask = [
                "exec",
                name,
                "--container=istio-proxy",
                "--",
                "pilot-agent",
                "request",
                "GET",
                "certs",
            ];

            let output = mesh
                .node
                .kubectl(&[&["--namespace", namespace], &ask[..]].concat())?;
            let certificates: Value = serde_json::from_str(&output)?;
            let chains = certificates["certificates"]
                .as_array()
                .context("certificates")?;
            let chains = chains
                .iter()
                .filter_map(|one| one["cert_chain"].as_array())
                .flatten();
            let own = chains
                .filter_map(|one| one["serial_number"].as_str().map(str::to_owned))
                .collect();
            serials.insert(format!("{namespace}/{name}"), own);
        }
    }

    Ok(serials)
}

/// The objects that contain the mesh's root.
fn root_of_trust(mesh: &Mesh) -> Result<[Value; 3]> {
    let key = mesh
        .node
        .get(mesh::NAMESPACE, &["secret", "istio-ca-secret"])?;
    let map = mesh
        .node
        .get(pods::NAMESPACE, &["configmap", "istio-ca-root-cert"])?;
    let hooks = mesh.node.get(
        mesh::NAMESPACE,
        &["mutatingwebhookconfiguration", "istio-sidecar-injector"],
    )?;
    let hook = hooks["webhooks"][0]["clientConfig"]["caBundle"].clone();
    Ok([key["data"].clone(), map["data"].clone(), hook])
}

/// The only pod of the control plane, and its image.
fn control_plane(mesh: &Mesh) -> Result<(String, String)> {
    let list = mesh
        .node
        .get(mesh::NAMESPACE, &["pods", "--selector=app=istiod"])?;
    let pods = list["items"].as_array().context("a list")?;
    let [pod] = pods.as_slice() else {
        anyhow::bail!("{} control planes", pods.len())
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((
        text(&pod["metadata"]["name"]),
        text(&pod["spec"]["containers"][0]["image"]),
    ))
}

/// A mesh whose control plane is replaced.
pub(crate) struct Swapped {
    mesh: Mesh,
    watched: Watched,
    locks: Locks,
    stages: Stages,
}

/// What a replacement brings, and the edit of a route after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement<'a> {
    pub(crate) what: &'a str,
    /// The image of the control plane.
    pub(crate) image: &'a str,
    /// The percentage of requests for the new reviews, and the version that readers see then.
    pub(crate) share: u32,
    pub(crate) version: &'a str,
}

impl Swapped {
    /// Starts the bookshop on a mesh with a control plane.
    pub(crate) async fn start(mesh: Mesh, mut stages: Stages) -> Result<Self> {
        let locks = Locks::watch(&mesh).await?;
        stages.over("the first control plane");
        mesh.bookshop(root())?;
        split(&mesh, 0)?;
        all_see(&mesh, "v1").await?;
        let watched = Watched::start(&mesh).await?;
        stages.over("bookshop");
        Ok(Self {
            mesh,
            watched,
            locks,
            stages,
        })
    }

    /// Replaces the control plane. The proxies keep running with their certificates; later edits
    /// reach them, and new pods start.
    pub(crate) async fn replace(
        &mut self,
        replacement: Replacement<'_>,
        install: impl FnOnce(&Mesh) -> Result<()>,
    ) -> Result<()> {
        let Replacement {
            what,
            image,
            share,
            version,
        } = replacement;
        let before = certificates(&self.mesh)?;
        let trust = root_of_trust(&self.mesh)?;
        install(&self.mesh)?;
        settled(&self.mesh, mesh::NAMESPACE).await?;
        let (pod, runs) = control_plane(&self.mesh)?;
        ensure!(
            runs == image,
            "{what}: {pod} runs {runs} instead of {image}"
        );
        self.watched.count_lost(what, AFTER).await?;

        split(&self.mesh, share)?;
        all_see(&self.mesh, version).await?;
        self.watched
            .count_lost(&format!("an edit after {what}"), AFTER)
            .await?;
        let after = certificates(&self.mesh)?;
        ensure!(
            before == after,
            "certificates were issued again: {before:?} became {after:?}"
        );

        ensure!(trust == root_of_trust(&self.mesh)?, "the root has changed");
        restart(&self.mesh, pods::NAMESPACE, &[RESTARTED]).await?;
        self.watched
            .count_lost(&format!("{RESTARTED} anew after {what}"), AFTER)
            .await?;
        let locks = &self.locks;
        wait::until(&format!("{pod} leads"), || async {
            !locks.of(&pod).is_empty()
        })
        .await;
        eprintln!("  {pod} holds {:?}", self.locks.of(&pod));
        self.stages.over(what);
        Ok(())
    }

    /// Fails if a request was lost, or a lock had two holders.
    pub(crate) fn verdict(&self) -> Result<()> {
        for change in self.locks.verdict()? {
            eprintln!("  {change}");
        }
        self.watched.verdict()
    }
}

/// From istiod to Navarch, back, and to Navarch again.
pub(crate) async fn replace_and_restore(istiod: &Istiod) -> Result<()> {
    let mut stages = Stages::default();
    let folder = tempfile::tempdir()?;
    let mut images = mesh::images(root(), &program("navarch"), folder.path())?;
    images.push(istiod.image(folder.path())?);
    let images: Vec<&Path> = images.iter().map(AsRef::as_ref).collect();
    let mesh = Mesh::on(root(), Node::start(root(), &images)?)?;
    drop(folder);
    stages.over("node");

    let chart = istiod.chart("istio-discovery");
    mesh.install_chart("istio-base", &istiod.chart("base"), &[])?;
    install(&mesh, &chart, ISTIOD)?;
    let mut swapped = Swapped::start(mesh, stages).await?;

    let navarch = Replacement {
        what: "Navarch in istiod's place",
        image: NAVARCH,
        share: 100,
        version: "v2",
    };
    let istiod = Replacement {
        what: "istiod in Navarch's place",
        image: ISTIOD,
        share: 0,
        version: "v1",
    };
    for replacement in [navarch, istiod, navarch] {
        let install = |mesh: &Mesh| install(mesh, &chart, replacement.image);
        swapped.replace(replacement, install).await?;
    }
    swapped.verdict()
}
