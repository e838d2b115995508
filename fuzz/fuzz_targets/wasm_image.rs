//! Manifests and layers from registries of Wasm modules.

#![no_main]

#[path = "../entries/wasm_image.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
