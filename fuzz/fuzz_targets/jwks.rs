//! JSON Web Key Sets.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::jwks::run(data));
