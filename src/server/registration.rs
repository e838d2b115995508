//! What of the environment says that Kubernetes signs.

use std::path::PathBuf;

use navarch_security::ca::RegistrationConfig;

/// Where the roots of an outer CA are mounted.
const ROOTS: &str = "./etc/external-ca-cert/root-cert.pem";
/// The roots of the cluster, by which its own signers are known.
const CLUSTER_ROOTS: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// With the file of the roots, as istiod chooses it: one that is mounted, else the cluster's, unless signers are named.
pub(super) fn with_roots(config: RegistrationConfig) -> RegistrationConfig {
    let mounted = PathBuf::from(ROOTS);
    let roots = match config.roots {
        Some(roots) => Some(roots),
        None if mounted.exists() => Some(mounted),
        None if config.signer_domain.is_empty() => Some(PathBuf::from(CLUSTER_ROOTS)),
        None => None,
    };
    RegistrationConfig { roots, ..config }
}
