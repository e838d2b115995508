//! Istio's own programs, where somebody has built them: no test needs them, and those that compare with them are left out without.

use std::path::PathBuf;

use crate::envoy;

/// Why a test of istioctl is left out.
pub const NO_ISTIOCTL: &str = "scripts/istioctl builds istioctl";

/// The istioctl that `scripts/istioctl` has built.
#[must_use]
pub fn istioctl() -> Option<PathBuf> {
    Some(envoy::program().with_file_name("istioctl")).filter(|program| program.exists())
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
