//! Sets of keys, as issuers publish them and users write them into policies.

#![no_main]

#[path = "../entries/jwks.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
