//! The settings of signing by Kubernetes, from the environment.

use std::path::PathBuf;

use navarch_api::regular_file;
use navarch_security::ca::RegistrationConfig;

/// The file with the roots of an external CA.
const ROOTS_FILE: &str = "./etc/external-ca-cert/root-cert.pem";
/// The roots of the cluster, which verify its own signers.
const CLUSTER_ROOTS: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Selects the file of the roots, as istiod does: a mounted one, or else the cluster's, unless
/// signers are configured.
pub(super) fn with_roots(config: RegistrationConfig) -> RegistrationConfig {
    let mounted = PathBuf::from(ROOTS_FILE);
    let roots = match config.roots {
        Some(roots) => Some(roots),
        None if regular_file::may_exist(&mounted) => Some(mounted),
        None if config.signer_domain.is_empty() => Some(PathBuf::from(CLUSTER_ROOTS)),
        None => None,
    };
    RegistrationConfig { roots, ..config }
}
