//! Manifests and layers from registries of Wasm modules.

use navarch::agent::wasm::manifest::{Manifest, Packing, parse};
use navarch::agent::wasm::unpack;

/// The maximum size of a module in this test.
const MAX_BYTES: u64 = 1 << 20;

/// Handles one response of a registry.
///
/// # Panics
/// If an accepted digest is not 64 hexadecimal digits (it becomes a file name), or the unpacked
/// module exceeds the limit.
pub fn run(data: &[u8]) {
    let digest = match parse(data) {
        Ok(Manifest::Index(digest)) => Some(digest),
        Ok(Manifest::Module(layer)) => Some(layer.digest),
        Err(_) => None,
    };
    assert!(digest.is_none_or(
        |digest| digest.len() == 64 && digest.bytes().all(|sign| sign.is_ascii_hexdigit())
    ));
    for packing in [Packing::Archive, Packing::Plain] {
        if let Ok(module) = unpack(data, packing, MAX_BYTES) {
            assert!(module.starts_with(b"\0asm") && module.len() <= 1 << 20);
        }
    }
}
