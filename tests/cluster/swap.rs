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
const ISTIOD: &str = "localhost/pilot:test";
const NAVARCH: &str = "localhost/navarch:test";

/// The directory with istiod and its charts, as `scripts/istiod` builds them.
pub(crate) struct Istiod(PathBuf);

impl Istiod {
    /// From `NAVARCH_ISTIOD`, or from the tools' directory.
    pub(crate) fn find() -> Option<Self> {
        navarch_testkit::istio::istiod().map(Self)
    }

    /// A chart of Istio's.
    fn chart(&self, name: &str) -> PathBuf {
        self.0.join("charts").join(name)
    }

    /// Builds its image with the entry point of Istio's own.
    fn image(&self, out: &Path) -> Result<PathBuf> {
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

    /// Installs Istio with this image as the control plane.
    fn install(&self, mesh: &Mesh, image: &str) -> Result<()> {
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

        mesh.install_chart("istiod", &self.chart("istio-discovery"), &set)
    }
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
struct Swapped<'a> {
    istiod: &'a Istiod,
    mesh: Mesh,
    watched: Watched,
    locks: Locks,
    stages: Stages,
}

impl Swapped<'_> {
    /// Replaces the image. The proxies keep running with their certificates; later edits reach
    /// them, and new pods start.
    async fn swap(
        &mut self,
        image: &str,
        share: u32,
        version: &str,
        restarted: &str,
    ) -> Result<()> {
        let before = certificates(&self.mesh)?;
        let trust = root_of_trust(&self.mesh)?;
        self.istiod.install(&self.mesh, image)?;
        settled(&self.mesh, mesh::NAMESPACE).await?;
        let (pod, runs) = control_plane(&self.mesh)?;
        ensure!(runs == image, "{pod} runs {runs} instead of {image}");
        self.watched
            .count_lost(&format!("swapped for {image}"), AFTER)
            .await?;

        split(&self.mesh, share)?;
        all_see(&self.mesh, version).await?;
        self.watched
            .count_lost(&format!("an edit under {image}"), AFTER)
            .await?;
        let after = certificates(&self.mesh)?;
        ensure!(
            before == after,
            "certificates were issued again: {before:?} became {after:?}"
        );

        ensure!(trust == root_of_trust(&self.mesh)?, "the root has changed");
        restart(&self.mesh, pods::NAMESPACE, &[restarted]).await?;
        self.watched
            .count_lost(&format!("{restarted} anew under {image}"), AFTER)
            .await?;
        let locks = &self.locks;
        wait::until(&format!("{pod} leads"), || async {
            !locks.of(&pod).is_empty()
        })
        .await;
        eprintln!("  {pod} holds {:?}", self.locks.of(&pod));
        self.stages.over(image);
        Ok(())
    }
}

/// From istiod to Navarch, and back.
pub(crate) async fn replace_and_restore(istiod: &Istiod) -> Result<()> {
    let mut stages = Stages::default();
    let folder = tempfile::tempdir()?;
    let mut images = mesh::images(root(), &program("navarch"), folder.path())?;
    images.push(istiod.image(folder.path())?);
    let images: Vec<&Path> = images.iter().map(AsRef::as_ref).collect();
    let mesh = Mesh::on(root(), Node::start(root(), &images)?)?;
    drop(folder);
    stages.over("node");

    mesh.install_chart("istio-base", &istiod.chart("base"), &[])?;
    istiod.install(&mesh, ISTIOD)?;
    let locks = Locks::watch(&mesh).await?;
    stages.over("istiod");
    mesh.bookshop(root())?;
    split(&mesh, 0)?;
    all_see(&mesh, "v1").await?;
    let watched = Watched::start(&mesh).await?;

    stages.over("bookshop");

    let mut swapped = Swapped {
        istiod,
        mesh,
        watched,
        locks,
        stages,
    };

    swapped.swap(NAVARCH, 100, "v2", "catalog-v1").await?;
    swapped.swap(ISTIOD, 0, "v1", "catalog-v1").await?;
    swapped.swap(NAVARCH, 100, "v2", "catalog-v1").await?;
    for change in swapped.locks.verdict()? {
        eprintln!("  {change}");
    }

    swapped.watched.verdict()
}
