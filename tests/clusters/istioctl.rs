//! `istioctl remote-clusters` with two clusters that read each other, if `scripts/istioctl` has
//! built istioctl.

use anyhow::{Result, ensure};
use navarch_testkit::skip::skip_test;
use navarch_testkit::{istio, joined, mesh};

use crate::pair::Pair;

/// On each node istioctl lists its own cluster, without a Secret, and the other one, both as
/// synced.
pub(crate) fn remote_clusters(pair: &Pair) -> Result<()> {
    let Some(program) = istio::istioctl() else {
        skip_test(istio::NO_ISTIOCTL);
        return Ok(());
    };
    for side in pair.sides() {
        let shown = program.run(&side.mesh.node.kubeconfig(), &["remote-clusters"])?;
        let rows = istio::rows(&shown);
        let other = pair.other(side).name;
        let secret = format!("{}/{}", mesh::NAMESPACE, joined::secret_name(other));
        let has = |row: &[&str]| rows.iter().any(|found| found.starts_with(row));
        ensure!(
            rows.len() == 2 && has(&[side.name, "synced"]) && has(&[other, &secret, "synced"]),
            "{shown}"
        );
        println!("{shown}");
    }
    Ok(())
}
