//! Manifests and layers that registries of Wasm modules send.

use navarch::agent::wasm::manifest::{Manifest, Packing, parse};
use navarch::agent::wasm::unpack;

/// The largest module here.
const MAX_BYTES: u64 = 1 << 20;

/// Runs one answer of a registry through.
///
/// # Panics
/// When a digest that could name another file is let through, or more is unpacked than is allowed.
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
