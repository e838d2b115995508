//! What a CA is made of, as Secrets and mounted folders hold it, and certificates that gateways
//! serve.

#![no_main]

#[path = "../entries/pem_bundle.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
