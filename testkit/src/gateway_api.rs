//! The Gateway API's CustomResourceDefinitions.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::envoy;

/// The CRDs of the experimental channel as YAML documents: those that `scripts/gateway-api` has
/// downloaded with the conformance suite, or another version in the file of
/// `NAVARCH_GATEWAY_API_CRDS`.
///
/// # Errors
/// If the file is missing.
pub fn crds() -> Result<String> {
    let program = envoy::program();
    let tools = program
        .parent()
        .and_then(Path::parent)
        .context("the folder of the tools is unknown")?;
    let file = other_version().unwrap_or_else(|| tools.join("gateway-api/crds.yaml"));
    std::fs::read_to_string(&file)
        .with_context(|| format!("{}: run scripts/gateway-api", file.display()))
}

/// The file of another version of the CRDs (`NAVARCH_GATEWAY_API_CRDS`).
#[must_use]
pub fn other_version() -> Option<PathBuf> {
    std::env::var_os("NAVARCH_GATEWAY_API_CRDS").map(PathBuf::from)
}
