//! The program that is measured, and the checkout with the files that it needs.

use std::path::PathBuf;

use clap::Args;

/// What all measurements that start their own control plane need.
#[derive(Clone, Debug, Args)]
pub(crate) struct Checkout {
    /// The program navarch, built with optimisations
    pub(crate) navarch: PathBuf,
    /// The checkout: Istio's CRDs and the mesh config are read from it
    pub(crate) root: PathBuf,
}

impl Checkout {
    /// The mesh config of all measurements that set one.
    pub(crate) fn mesh_config(&self) -> PathBuf {
        self.root.join("deploy/samples/mesh.yaml")
    }
}
