//! JSON Web Key Sets.

#![no_main]

#[path = "../entries/jwks.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
