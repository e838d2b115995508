//! Unpacks modules from gzip and tar, with limits of size and depth.

use std::io::Read;

use flate2::read::GzDecoder;

use super::manifest::Packing;

/// The magic number of a module.
const MAGIC: [u8; 4] = *b"\0asm";
/// Size of a module's header: the magic number and the version.
const HEAD: usize = 8;
/// The magic number of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The magic number of tar, and its offset.
const TAR: (usize, &[u8]) = (257, b"ustar");
/// The file name of a module in an image.
const FILE: &str = "plugin.wasm";
/// Maximum depth of nested compression and archives.
const DEPTH: usize = 4;
/// Maximum number of archive entries to read.
const ENTRIES: usize = 4096;

/// Why unpacking failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The module exceeds the size limit.
    #[error("the unpacked module exceeds {0} bytes")]
    TooLarge(u64),
    /// The data is truncated or corrupt.
    #[error("failed to unpack the module: {0}")]
    Broken(String),
    /// The data is not a module.
    #[error("not a Wasm module")]
    NoModule,
}

/// The module in a layer of an image or in a file.
///
/// # Errors
/// If it contains no module, or is too large.
pub fn unpack(bytes: &[u8], packing: Packing, max_bytes: u64) -> Result<Vec<u8>, UnpackError> {
    let module = match packing {
        Packing::Archive => {
            from_archive(&unzip(bytes, max_bytes)?, |name| name == FILE, max_bytes)?
        }
        Packing::Plain => unpack_any(bytes.to_vec(), max_bytes)?,
    };
    if module.len() >= HEAD && module.starts_with(&MAGIC) {
        Ok(module)
    } else {
        Err(UnpackError::NoModule)
    }
}

/// The module in a file with any nesting of formats; of archives, the first file.
fn unpack_any(mut bytes: Vec<u8>, max_bytes: u64) -> Result<Vec<u8>, UnpackError> {
    for _ in 0..DEPTH {
        let is_tar = bytes.get(TAR.0..TAR.0 + TAR.1.len()) == Some(TAR.1);
        bytes = if bytes.starts_with(&GZIP) {
            unzip(&bytes, max_bytes)?
        } else if is_tar {
            from_archive(&bytes, |_| true, max_bytes)?
        } else {
            break;
        };
    }
    Ok(bytes)
}

/// Decompresses gzip.
fn unzip(bytes: &[u8], max_bytes: u64) -> Result<Vec<u8>, UnpackError> {
    read(GzDecoder::new(bytes), max_bytes)
}

/// The first file of an archive whose name matches.
fn from_archive(
    bytes: &[u8],
    wanted: impl Fn(&str) -> bool,
    max_bytes: u64,
) -> Result<Vec<u8>, UnpackError> {
    let broken = |error: std::io::Error| UnpackError::Broken(error.to_string());
    let mut archive = tar::Archive::new(bytes);
    for entry in archive.entries().map_err(broken)?.take(ENTRIES) {
        let entry = entry.map_err(broken)?;
        let name = entry.path_bytes().into_owned();
        let name = name.rsplit(|sign| *sign == b'/').next().unwrap_or_default();
        // Links are skipped, and files are never written under names from an archive.
        if entry.header().entry_type().is_file() && wanted(&String::from_utf8_lossy(name)) {
            return read(entry, max_bytes);
        }
    }
    Err(UnpackError::NoModule)
}

/// Reads everything, up to the size limit.
fn read(from: impl Read, max_bytes: u64) -> Result<Vec<u8>, UnpackError> {
    let mut bytes = Vec::new();
    let read = from
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes);
    read.map_err(|error| UnpackError::Broken(error.to_string()))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max_bytes {
        return Err(UnpackError::TooLarge(max_bytes));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const MODULE: &[u8] = b"\0asm\x01\0\0\0rest";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn modules_are_found_in_every_image_format() {
        let layer = gzip(&tar(&[("readme", b"x"), ("deep/plugin.wasm", MODULE)]));
        assert_eq!(unpack(&layer, Packing::Archive, 100_000).unwrap(), MODULE);
        for unpack_any in [
            MODULE.to_vec(),
            gzip(MODULE),
            tar(&[("any", MODULE)]),
            gzip(&tar(&[("any", &gzip(MODULE))])),
        ] {
            assert_eq!(
                unpack(&unpack_any, Packing::Plain, 100_000).unwrap(),
                MODULE
            );
        }
    }

    #[test]
    fn decompression_bombs_and_invalid_archives_are_rejected() {
        let bomb = gzip(&vec![0; 1 << 20]);
        assert_eq!(
            unpack(&bomb, Packing::Plain, 1000),
            Err(UnpackError::TooLarge(1000))
        );
        assert_eq!(
            unpack(b"hello", Packing::Plain, 1000),
            Err(UnpackError::NoModule)
        );

        assert_eq!(
            unpack(&gzip(&tar(&[("other", MODULE)])), Packing::Archive, 100_000),
            Err(UnpackError::NoModule)
        );
        assert!(matches!(
            unpack(&gzip(MODULE)[..12], Packing::Plain, 1000),
            Err(UnpackError::Broken(_))
        ));

        let mut nested = MODULE.to_vec();
        for _ in 0..10 {
            nested = gzip(&nested);
        }

        assert_eq!(
            unpack(&nested, Packing::Plain, 100_000),
            Err(UnpackError::NoModule)
        );
    }
}
