//! PEM files of CAs and gateways.

#![no_main]

#[path = "../entries/pem_bundle.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
