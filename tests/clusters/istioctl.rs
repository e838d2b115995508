//! `istioctl remote-clusters` on one of two clusters that read each other, where `scripts/istioctl` has built istioctl.

use std::process::Command;

use anyhow::{Result, ensure};
use navarch_testkit::skip::leave_out;
use navarch_testkit::{istio, joined, mesh};

use crate::pair::Pair;

/// On each node istioctl lists its own cluster, which has no Secret, and the other one, as synced.
pub(crate) fn remote_clusters(pair: &Pair) -> Result<()> {
    let Some(program) = istio::istioctl() else {
        leave_out(istio::NO_ISTIOCTL);
        return Ok(());
    };
    for side in pair.sides() {
        let mut command = Command::new(&program);
        command.args(["remote-clusters", "--istioNamespace", mesh::NAMESPACE, "--kubeconfig"]);
        let output = command.arg(side.mesh.node.kubeconfig()).env("HOME", side.mesh.node.logs()).output()?;
        let shown = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let other = pair.other(side).name;
        let secret = format!("{}/{}", mesh::NAMESPACE, joined::secret_name(other));
        let has = |row: &[&str]| rows.iter().any(|found| found.starts_with(row));
        ensure!(has(&["NAME", "SECRET", "STATUS", "ISTIOD"]), "{shown}");
        ensure!(has(&[side.name, "synced"]) && has(&[other, &secret, "synced"]), "{shown}");
        println!("{shown}");
    }
    Ok(())
}
