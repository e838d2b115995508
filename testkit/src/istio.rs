//! Istio's own programs, where somebody has built them: no test needs them, and those that compare with them are left out without.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{cluster, envoy};

/// Why a test of istioctl is left out.
pub const NO_ISTIOCTL: &str = "scripts/istioctl builds istioctl";

/// How long a command may take, in seconds.
const LIMIT: &str = "120";

/// istioctl.
#[derive(Clone, Debug)]
pub struct Istioctl(PathBuf);

/// The istioctl that `scripts/istioctl` has built.
#[must_use]
pub fn istioctl() -> Option<Istioctl> {
    Some(envoy::program().with_file_name("istioctl")).filter(|program| program.exists()).map(Istioctl)
}

impl Istioctl {
    /// A command with arguments that has no home. It is ended when it takes too long.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", LIMIT]).arg(&self.0).args(arguments);
        command.env("HOME", "/nonexistent").stdin(Stdio::null());
        command
    }

    /// A command on a cluster, which finds kubectl.
    ///
    /// # Errors
    /// When there is no kubectl.
    pub fn on(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Command> {
        let mut command = self.command(arguments);
        let path = format!("{}:/usr/bin:/bin", cluster::programs()?.display());
        command.env("KUBECONFIG", kubeconfig).env("PATH", path);
        Ok(command)
    }

    /// What a command on a cluster prints.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub fn run(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        printed(&self.on(kubeconfig, arguments)?.output()?).with_context(|| format!("istioctl {arguments:?}"))
    }

    /// What a command on a cluster prints as JSON.
    ///
    /// # Errors
    /// When it fails, or prints something else.
    pub fn json(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Value> {
        let shown = self.run(kubeconfig, &[arguments, &["--output", "json"]].concat())?;
        serde_json::from_str(&shown).with_context(|| format!("istioctl {arguments:?}: {shown}"))
    }
}

/// What a command printed.
///
/// # Errors
/// When it has failed, with all that it said.
pub fn printed(output: &Output) -> Result<String> {
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {shown}{said}", output.status);
    Ok(shown.into_owned())
}

/// The rows of a table that was printed, without its head, in words.
#[must_use]
pub fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect()
}

/// The folder with istiod (`pilot-discovery`) and Istio's charts: `NAVARCH_ISTIOD`, or what `scripts/istiod` has built.
#[must_use]
pub fn istiod() -> Option<PathBuf> {
    let tools = envoy::program().parent()?.with_file_name("istiod");
    let folder = std::env::var_os("NAVARCH_ISTIOD").map_or(tools, PathBuf::from);
    folder.join("pilot-discovery").exists().then_some(folder)
}

/// ztunnel: `NAVARCH_ZTUNNEL`, or `ztunnel` beside Envoy.
#[must_use]
pub fn ztunnel() -> Option<PathBuf> {
    let beside = envoy::program().with_file_name("ztunnel");
    Some(std::env::var_os("NAVARCH_ZTUNNEL").map_or(beside, PathBuf::from)).filter(|program| program.exists())
}
