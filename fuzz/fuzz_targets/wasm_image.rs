//! Manifests and layers from registries of Wasm modules.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::wasm_image::run(data));
