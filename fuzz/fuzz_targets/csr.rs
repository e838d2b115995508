//! Certificate signing requests.

#![no_main]

#[path = "../entries/csr.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
