//! Pods without sidecars: Istio's CNI and a ztunnel on each node, from Istio's own charts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::istio::{self, Cni};
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::watched::Watched;
use serde_json::json;

use crate::root;
use crate::shop::{
    Expected, GIVEN_UP, LOCAL, SHOPPER, VISITOR, answered, client, in_zone, namespace,
};
use crate::zones::{FAR, FIRST, NEAR, Zones};

/// Why ambient pods are left out.
pub(crate) const MISSING: &str = "NAVARCH_ZTUNNEL is not set to a built ztunnel, or Istio's CNI \
    (scripts/istio-suite-programs) or charts (scripts/istio-chart) are missing";
const NAMESPACE: &str = "ambient";
/// The images of ztunnel and of the CNI.
const ZTUNNEL_IMAGE: &str = "localhost/ztunnel:test";
const CNI_IMAGE: &str = "localhost/install-cni:test";

/// What ambient mode needs on nodes.
pub(crate) struct Parts {
    ztunnel: PathBuf,
    cni: Cni,
    ztunnel_chart: PathBuf,
    cni_chart: PathBuf,
}

/// Runs a command, and fails with its output.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

impl Parts {
    /// The parts, if all were built.
    pub(crate) fn find() -> Option<Self> {
        Some(Self {
            ztunnel: istio::ztunnel()?,
            cni: istio::cni()?,
            ztunnel_chart: istio::chart("ztunnel")?,
            cni_chart: istio::chart("istio-cni")?,
        })
    }

    /// Packs the images.
    pub(crate) fn images(&self, out: &Path) -> Result<[PathBuf; 2]> {
        let ztunnel = out.join("ztunnel.tar");
        mesh::program_image(root(), &self.ztunnel, ZTUNNEL_IMAGE, &ztunnel)?;

        // The plugin is copied to the node from where Istio's image has it.
        let folder = tempfile::tempdir()?;
        let files = folder.path().join("root");
        run(Command::new(root().join("scripts/image-root"))
            .arg("iptables")
            .arg(&files)
            .arg(&self.cni.agent))?;
        let plugins = files.join("opt/cni/bin");
        std::fs::create_dir_all(&plugins)?;
        std::fs::copy(&self.cni.plugin, plugins.join("istio-cni"))?;
        std::fs::create_dir_all(files.join("tmp"))?;

        let cni = out.join("install-cni.tar");
        run(Command::new(root().join("scripts/oci-image"))
            .arg(&cni)
            .args(["--name", CNI_IMAGE, "--cmd", "install-cni", "--root"])
            .arg(&files))?;
        Ok([ztunnel, cni])
    }

    /// Installs the charts, whose pods then run on each node.
    pub(crate) fn install(&self, mesh: &Mesh) -> Result<()> {
        let small = [
            "resources.requests.cpu=10m",
            "resources.requests.memory=20Mi",
        ];
        let image = format!("image={CNI_IMAGE}");
        let cni = [
            "profile=ambient",
            &image,
            "global.imagePullPolicy=IfNotPresent",
        ];
        mesh.install_chart("cni", &self.cni_chart, &[&cni[..], &small].concat())?;

        let image = format!("image={ZTUNNEL_IMAGE}");
        let ztunnel = [
            image.as_str(),
            "imagePullPolicy=IfNotPresent",
            "terminationGracePeriodSeconds=5",
        ];
        mesh.install_chart(
            "ztunnel",
            &self.ztunnel_chart,
            &[&ztunnel[..], &small].concat(),
        )
    }
}

/// A service in both zones that only accepts mutual TLS, and its clients.
pub(crate) struct AmbientShop<'a> {
    zones: &'a Zones,
    watched: Watched,
    /// The counts of the client on the first node.
    shopper: SocketAddr,
}

impl<'a> AmbientShop<'a> {
    /// Creates the service and its clients, and waits until each is answered from its own zone.
    pub(crate) async fn open(zones: &'a Zones) -> Result<Self> {
        let mesh = &zones.mesh;
        let mut objects = vec![namespace(NAMESPACE, "istio.io/dataplane-mode", "ambient")];
        for zone in [NEAR, FAR] {
            objects.extend(in_zone(NAMESPACE, LOCAL, zone));
        }
        for object in &mut objects {
            if object["kind"] == "Service" {
                object["spec"]["trafficDistribution"] = json!("PreferClose");
            }
        }
        objects.push(json!({
            "apiVersion": "security.istio.io/v1",
            "kind": "PeerAuthentication",
            "metadata": {"name": LOCAL, "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": {"app": LOCAL}}, "mtls": {"mode": "STRICT"}},
        }));
        mesh.apply(&objects)?;
        mesh.rolled_out(NAMESPACE)?;
        each_node_has_a_ztunnel(zones)?;

        let mut watched = Watched::default();
        let shopper = client(mesh, NAMESPACE, SHOPPER, FIRST, &[LOCAL])?;
        watched.watch(SHOPPER, shopper).await?;
        let visitor = client(mesh, NAMESPACE, VISITOR, FAR, &[LOCAL])?;
        watched.watch(VISITOR, visitor).await?;

        let mut shop = Self {
            zones,
            watched,
            shopper,
        };
        shop.answered("before anything changes", SHOPPER, &[NEAR])
            .await?;
        shop.answered("before anything changes", VISITOR, &[FAR])
            .await?;
        Ok(shop)
    }

    /// Waits until a client is answered from exactly these zones; failures meanwhile count.
    async fn answered(&mut self, what: &str, client: &str, zones: &[&str]) -> Result<()> {
        let expected = Expected {
            client,
            service: LOCAL,
            zones,
        };
        answered(&mut self.watched, &format!("{what}, ztunnels"), &expected).await
    }

    /// The last pod of a zone ends, and another one starts there.
    pub(crate) async fn a_zone_without_pods_is_served_by_the_other(&mut self) -> Result<()> {
        let deployment = format!("{LOCAL}-{NEAR}");
        self.zones.scale(NAMESPACE, &deployment, 0)?;
        self.answered("no pod near", SHOPPER, &[FAR]).await?;
        self.zones.scale(NAMESPACE, &deployment, 1)?;
        // ztunnel balances connections, and one of the client's stays where it is.
        self.answered("a pod near again", SHOPPER, &[NEAR, FAR])
            .await
    }

    /// A rolling update of the DaemonSet, one node at a time.
    pub(crate) async fn all_ztunnels_are_restarted(&mut self) -> Result<()> {
        let namespace = ["--namespace", mesh::NAMESPACE];
        for arguments in [
            &["rollout", "restart", "daemonset/ztunnel"][..],
            &["rollout", "status", "daemonset/ztunnel", "--timeout=120s"],
        ] {
            self.zones
                .mesh
                .node
                .kubectl(&[&namespace[..], arguments].concat())?;
        }
        self.answered("ztunnels restarted", SHOPPER, &[NEAR]).await
    }

    /// Once the cluster knows that the node is lost: until then ztunnel has no reason to avoid its
    /// endpoints.
    pub(crate) async fn the_lost_node_is_avoided(&mut self) -> Result<()> {
        // By then every request from before has failed or succeeded.
        tokio::time::sleep(GIVEN_UP).await;
        self.watched.watch(SHOPPER, self.shopper).await?;
        self.answered("node lost", SHOPPER, &[FAR]).await
    }

    /// New connections go there.
    pub(crate) async fn the_lost_node_is_back(&mut self) -> Result<()> {
        self.zones.mesh.rolled_out(NAMESPACE)?;
        self.answered("node back", SHOPPER, &[NEAR, FAR]).await?;
        each_node_has_a_ztunnel(self.zones)
    }

    /// Fails if any request failed that was to succeed.
    pub(crate) async fn verdict(mut self) -> Result<()> {
        self.answered("at the end", VISITOR, &[FAR]).await?;
        self.watched.verdict()
    }
}

/// Fails unless a ztunnel runs on each node.
fn each_node_has_a_ztunnel(zones: &Zones) -> Result<()> {
    let mut nodes = zones
        .nodes_of(mesh::NAMESPACE, "app=ztunnel")
        .context("ztunnels")?;
    nodes.sort();
    ensure!(nodes == [FAR, NEAR, FIRST], "ztunnels run on {nodes:?}");
    Ok(())
}
