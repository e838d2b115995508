//! A control plane on a directory with a generated mesh, and the proxies that are connected to it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::navarch::{Addresses, Navarch};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::checkout::Checkout;
use crate::xds::run::{Plan, Run, Server};
use crate::xds::target::Target;
use crate::xds::world::{self, Size};

/// Namespaces over which services and proxies are spread.
const NAMESPACES: usize = 10;

/// A running control plane on a generated directory, whose answers are measured.
#[derive(Debug)]
pub(crate) struct Plane<'a> {
    checkout: &'a Checkout,
    pub(crate) navarch: Navarch,
    /// The size of its mesh.
    size: Size,
    /// Its files; the watched directory is `mesh`.
    folder: TempDir,
}

impl<'a> Plane<'a> {
    /// Generates a mesh of this number of services, a tenth of them with rules, and starts the
    /// control plane on it.
    ///
    /// # Errors
    /// If the mesh cannot be written, or the control plane does not become ready.
    pub(crate) async fn start(
        checkout: &'a Checkout,
        services: usize,
        environment: &[(&str, &str)],
        args: &[String],
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let rules = (services / 10).max(8);
        let size = Size {
            services,
            endpoints: 10,
            namespaces: NAMESPACES,
            virtual_services: rules,
            destination_rules: rules,
            sidecars: 0,
            policies: 0,
            gateway_hosts: 0,
            pods: false,
            headless: false,
        };
        let mesh = folder.path().join("mesh");
        world::generate(&Target::Directory(mesh.clone()), &size).await?;

        let mut all = vec![format!(
            "--mesh-config={}",
            checkout.mesh_config().display()
        )];
        all.extend_from_slice(args);
        let navarch =
            Navarch::start_at(&checkout.navarch, &mesh, &all, environment, Addresses::ANY).await?;

        Ok(Self {
            checkout,
            navarch,
            size,
            folder,
        })
    }

    /// Connects a number of proxies, and returns them when they are in sync. They can change the
    /// mesh.
    ///
    /// # Errors
    /// If they are not in sync in time.
    pub(crate) async fn proxies(&self, count: usize) -> Result<Run> {
        let plan = Plan {
            proxies: count,
            proxy_namespaces: NAMESPACES,
            size: self.size,
            ..Plan::default()
        };
        let server = Server::started(self.navarch.xds, self.navarch.pid());
        let mut run = Run::new(plan, server, None);
        run.connect().await?;
        Ok(run)
    }

    /// The directory that the control plane watches.
    pub(crate) fn mesh(&self) -> PathBuf {
        self.folder.path().join("mesh")
    }

    /// A VirtualService that all proxies use: its namespace, name and file.
    pub(crate) fn rule(&self) -> (String, &'static str, PathBuf) {
        let namespace = format!("ns{}", 7 % NAMESPACES);
        let file = self
            .mesh()
            .join(format!("virtualservice/vs7.{namespace}.yaml"));
        (namespace, "vs7", file)
    }

    /// Runs a `navarch` command against this control plane, and returns its duration and its
    /// output.
    ///
    /// # Errors
    /// If the command fails.
    pub(crate) fn ask(&self, args: &[&str]) -> Result<(Duration, Value)> {
        let mut command = Command::new(&self.checkout.navarch);
        command.args(args).args([
            "-o",
            "json",
            "--address",
            &self.navarch.monitoring.to_string(),
        ]);
        let begun = Instant::now();
        let output = command.output();
        let took = begun.elapsed();

        let output = output.with_context(|| format!("cannot start {command:?}"))?;
        ensure!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok((took, serde_json::from_slice(&output.stdout)?))
    }

    /// A directory for its output files.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Disconnects proxies.
///
/// # Errors
/// If a stream has ended by itself meanwhile.
pub(crate) async fn end(mut proxies: Run) -> Result<()> {
    let (broken, _) = proxies.shared.tally.troubles();
    proxies.end().await;
    ensure!(broken == 0, "{broken} streams broke");
    Ok(())
}
