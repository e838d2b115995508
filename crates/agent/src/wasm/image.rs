//! The image of a module: its manifest, in an index or by itself.

use super::manifest::{self, Layer, Manifest, ManifestError};
use crate::oci::reference::Reference;
use crate::oci::registry::{Registry, RegistryError};

/// Maximum depth of nested indexes.
const INDEXES: usize = 2;

/// Errors of pulling an image.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageError {
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Indexes are nested too deeply.
    #[error("the image index refers to another index")]
    Indexes,
}

/// The image's manifest.
pub(super) struct Image {
    /// The digest of the manifest: the image's checksum.
    pub(super) digest: String,
    /// The layer with the module.
    pub(super) layer: Layer,
}

impl Image {
    /// Reads the manifest.
    pub(super) async fn read(
        registry: &mut Registry<'_>,
        reference: &Reference,
    ) -> Result<Self, ImageError> {
        let mut version = reference.version();

        for _ in 0..=INDEXES {
            let fetched = registry.manifest(&version).await?;
            match manifest::parse(&fetched.json)? {
                Manifest::Module(layer) => {
                    return Ok(Self {
                        digest: fetched.digest,
                        layer,
                    });
                }
                Manifest::Index(chosen) => version = format!("sha256:{chosen}"),
            }
        }

        Err(ImageError::Indexes)
    }
}
