//! The real Helm.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// The Kubernetes version for rendered charts: without a cluster, Helm's default is an outdated
/// one.
const KUBE_VERSION: &str = "--kube-version=1.36.0";

/// Helm with its own home directory.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    /// The home directory.
    home: TempDir,
}

impl Helm {
    /// The Helm that `scripts/tools` installs.
    ///
    /// # Errors
    /// If it is missing.
    pub fn find() -> Result<Self> {
        let program = crate::envoy::program().with_file_name("helm");
        ensure!(
            program.exists(),
            "{} is missing: run `make tools` (scripts/helm)",
            program.display()
        );
        Ok(Self {
            program,
            home: tempfile::tempdir()?,
        })
    }

    /// Runs it on a cluster, or without one. Returns its output.
    ///
    /// # Errors
    /// If it fails, with its error output.
    pub fn run(&self, kubeconfig: Option<&Path>, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG");
        for folder in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{folder}_HOME"), self.home.path().join(folder));
        }
        if let Some(kubeconfig) = kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        let output = command.output().context("cannot start helm")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {}: {stderr}", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
    /// Renders a chart to YAML documents, without a cluster.
    ///
    /// # Errors
    /// If the chart rejects the values, with the error output.
    pub fn template(
        &self,
        chart: &Path,
        release: &str,
        namespace: &str,
        values: &Value,
    ) -> Result<String> {
        let file = tempfile::NamedTempFile::new_in(self.home.path())?;
        std::fs::write(file.path(), values.to_string())?;
        let [chart, file] = [chart, file.path()].map(|path| path.to_string_lossy().into_owned());
        self.run(
            None,
            &[
                "template",
                release,
                &chart,
                "--namespace",
                namespace,
                KUBE_VERSION,
                "--values",
                &file,
            ],
        )
    }

    /// Lints a chart.
    ///
    /// # Errors
    /// If it finds a problem, with its output.
    pub fn lint(&self, chart: &Path) -> Result<String> {
        self.run(
            None,
            &["lint", "--strict", &chart.to_string_lossy(), KUBE_VERSION],
        )
    }
}
