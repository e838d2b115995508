//! Image manifests: finds the layer that contains the module.

use serde::Deserialize;

use crate::oci::reference::is_sha256;

/// The media type of Docker's manifests.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// The media type of Docker's layers.
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// The media type of OCI layers.
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The media type of a layer that is a module.
const WASM_LAYER: &str = "application/vnd.module.wasm.content.layer.v1+wasm";
/// The result of parsing a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manifest {
    /// An index with an image per platform: the digest of the one to use.
    Index(String),
    /// The layer that contains the module.
    Module(Layer),
}

/// A layer of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its sha256 in hexadecimal.
    pub digest: String,
    /// Its size in bytes.
    pub size: u64,
    /// The format of the layer.
    pub packing: Packing,
}

/// The format of a layer with a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// `plugin.wasm` in a compressed archive.
    Archive,
    /// The module itself.
    Plain,
}

/// Errors of parsing a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The JSON is invalid.
    #[error("failed to parse the image manifest: {0}")]
    Unreadable(String),
    /// A digest is not sha256.
    #[error("digest {0:?} of the image manifest is not sha256")]
    Digest(String),
    /// No layer can contain a module.
    #[error("no layer of the image contains a Wasm module")]
    NoModule,
}

/// The JSON of a manifest or an index.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Wire {
    /// The manifest's own media type; only Docker's manifests always have it.
    media_type: String,
    /// The layers of an image.
    layers: Vec<Descriptor>,
    /// The images of an index.
    manifests: Vec<Descriptor>,
}

/// A reference to an image or a layer.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Descriptor {
    media_type: String,
    digest: String,
    /// Its size in bytes.
    size: u64,
    /// The platform of an image.
    platform: Platform,
}

/// The platform of an image.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Platform {
    /// The operating system.
    os: String,
    architecture: String,
}

/// Parses a manifest.
///
/// # Errors
/// If it is invalid or has no module.
pub fn parse(json: &[u8]) -> Result<Manifest, ManifestError> {
    let wire: Wire = serde_json::from_slice(json)
        .map_err(|error| ManifestError::Unreadable(error.to_string()))?;
    if wire.layers.is_empty() && !wire.manifests.is_empty() {
        let is_usual =
            |one: &&Descriptor| one.platform.os == "linux" && one.platform.architecture == "amd64";
        let chosen = wire
            .manifests
            .iter()
            .find(is_usual)
            .or(wire.manifests.first());
        let chosen = chosen.ok_or(ManifestError::NoModule)?;
        return Ok(Manifest::Index(sha256(&chosen.digest)?));
    }

    let (layer, packing) = choose(&wire).ok_or(ManifestError::NoModule)?;
    Ok(Manifest::Module(Layer {
        digest: sha256(&layer.digest)?,
        size: layer.size,
        packing,
    }))
}

/// The layer with the module: the last one of an ordinary image, or the Wasm layer of an image with
/// two layers.
fn choose(wire: &Wire) -> Option<(&Descriptor, Packing)> {
    let last = wire.layers.last()?;
    let ordinary = if wire.media_type == DOCKER_MANIFEST {
        DOCKER_LAYER
    } else {
        OCI_LAYER
    };
    if last.media_type == ordinary {
        return Some((last, Packing::Archive));
    }
    if wire.media_type == DOCKER_MANIFEST || wire.layers.len() != 2 {
        return None;
    }
    let module = wire
        .layers
        .iter()
        .find(|layer| layer.media_type == WASM_LAYER)?;
    Some((module, Packing::Plain))
}

/// The hexadecimal part of a digest.
fn sha256(digest: &str) -> Result<String, ManifestError> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_sha256(hex));
    hex.map(str::to_owned)
        .ok_or_else(|| ManifestError::Digest(digest.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_layer_is_chosen_by_the_kind_of_image() {
        let digest = |sign: &str| format!("sha256:{}", sign.repeat(64));
        let layer =
            |kind: &str, sign: &str| json!({"mediaType": kind, "digest": digest(sign), "size": 7});
        let module = |sign: &str, packing| {
            Ok(Manifest::Module(Layer {
                digest: sign.repeat(64),
                size: 7,
                packing,
            }))
        };

        for (manifest, expected) in [
            (
                json!({"mediaType": DOCKER_MANIFEST, "layers": [layer("x", "a"), layer(DOCKER_LAYER, "b")]}),
                module("b", Packing::Archive),
            ),
            (
                json!({"mediaType": DOCKER_MANIFEST, "layers": [layer(OCI_LAYER, "a")]}),
                Err(ManifestError::NoModule),
            ),
            (
                json!({"layers": [layer(OCI_LAYER, "c")]}),
                module("c", Packing::Archive),
            ),
            (
                json!({"layers": [layer(WASM_LAYER, "d"), layer("config", "e")]}),
                module("d", Packing::Plain),
            ),
            (
                json!({"layers": [layer(WASM_LAYER, "d")]}),
                Err(ManifestError::NoModule),
            ),
            (json!({"layers": []}), Err(ManifestError::NoModule)),
            (
                json!({"layers": [{"mediaType": OCI_LAYER, "digest": "sha256:../../etc/passwd", "size": 1}]}),
                Err(ManifestError::Digest("sha256:../../etc/passwd".to_owned())),
            ),
            (
                json!({"manifests": [
                    {"digest": digest("1"), "platform": {"os": "linux", "architecture": "arm64"}},
                    {"digest": digest("2"), "platform": {"os": "linux", "architecture": "amd64"}},
                ]}),
                Ok(Manifest::Index("2".repeat(64))),
            ),
        ] {
            assert_eq!(
                parse(manifest.to_string().as_bytes()),
                expected,
                "{manifest}"
            );
        }

        assert!(matches!(parse(b"[["), Err(ManifestError::Unreadable(_))));
    }
}
