//! Simulated Envoys against Navarch, or against the real istiod, which reads its mesh from a real
//! API server.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use navarch_testkit::cluster::Cluster;
use navarch_testkit::istio::{Istiod, IstiodConfig};
use navarch_testkit::navarch::Navarch;

use crate::checkout::Checkout;
use crate::xds::run::{Plan, Run, Server};
use crate::xds::target::Target;
use crate::xds::world;

/// Measures navarch, or istiod, on an API server with simulated Envoys
///
/// Starts an API server (`make tools` installs it), writes a generated mesh to it, starts the
/// control plane, and then does what `xds run` does with the same options.
///
/// Prints the table of `xds run`, and writes its JSON to RESULT, with the table beside it as .md.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    checkout: Checkout,
    /// The file for the JSON object
    result: PathBuf,
    /// Measure the istiod (pilot-discovery) in this folder, not NAVARCH; scripts/istiod builds one
    #[arg(long, value_name = "FOLDER")]
    istiod: Option<PathBuf>,
    #[command(flatten)]
    plan: Plan,
}

impl Options {
    /// Starts everything, and measures.
    ///
    /// # Errors
    /// If a part does not start, the measurement fails, or the result cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        let cluster = Cluster::start().await?;
        cluster.apply_crds(&self.checkout.root)?;
        let target = Target::Cluster(cluster.writer().await?);
        world::generate(&target, &self.plan.size).await?;

        match &self.istiod {
            Some(folder) => {
                cluster
                    .apply("{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}")?;
                let config = IstiodConfig {
                    folder,
                    kubeconfig: &cluster.admin_kubeconfig(),
                    mesh_config: &self.checkout.mesh_config(),
                    log: &self.result.with_extension("istiod.log"),
                    variables: &[],
                    has_tls: false,
                };
                let istiod = Istiod::start(config).await?;
                let server = Server::started(istiod.xds, istiod.pid());
                self.measure(server, target).await
            }
            None => {
                let Checkout { navarch, .. } = &self.checkout;
                let mesh = format!("--mesh-config={}", self.checkout.mesh_config().display());
                let kubeconfig = cluster.admin_kubeconfig();
                let navarch =
                    Navarch::start_on_kubernetes(navarch, &kubeconfig, &[&mesh], &[]).await?;
                let server = Server::started(navarch.xds, navarch.pid());
                self.measure(server, target).await?;
                navarch.stop().await?;
                Ok(())
            }
        }
    }

    /// Measures a control plane with simulated Envoys, and reports that.
    async fn measure(&self, server: Server, target: Target) -> Result<()> {
        let run = Run::new(self.plan.clone(), server, Some(target));
        let report = run.run().await?;
        report.publish(Some(&self.result))
    }
}
