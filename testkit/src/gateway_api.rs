//! The Gateway API's CustomResourceDefinitions.

use std::path::Path;

use anyhow::{Context, Result};

use crate::envoy;

/// The CRDs of the experimental channel that `scripts/gateway-api` has downloaded with the
/// conformance suite, as YAML documents.
///
/// # Errors
/// If the file is missing.
pub fn crds() -> Result<String> {
    let program = envoy::program();
    let tools = program
        .parent()
        .and_then(Path::parent)
        .context("the folder of the tools is unknown")?;
    let file = tools.join("gateway-api/crds.yaml");
    std::fs::read_to_string(&file)
        .with_context(|| format!("{}: run scripts/gateway-api", file.display()))
}
