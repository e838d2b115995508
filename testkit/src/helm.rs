//! Helm itself, as people run it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// Helm with a home of its own.
#[derive(Debug)]
pub struct Helm {
    /// The program.
    program: PathBuf,
    /// Where it keeps what it keeps.
    home: TempDir,
}

impl Helm {
    /// The Helm that `scripts/tools` installs.
    ///
    /// # Errors
    /// When it is not there.
    pub fn find() -> Result<Self> {
        let program = crate::envoy::program().with_file_name("helm");
        ensure!(program.exists(), "{} is missing: run `make tools` (scripts/helm)", program.display());
        Ok(Self { program, home: tempfile::tempdir()? })
    }

    /// Runs it on a cluster, or without one; gives what it prints.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub fn run(&self, kubeconfig: Option<&Path>, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(args).env("HOME", self.home.path()).env_remove("KUBECONFIG");
        for folder in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{folder}_HOME"), self.home.path().join(folder));
        }
        if let Some(kubeconfig) = kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        let output = command.output().context("cannot start helm")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {}: {said}", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
