//! Encoded discovery requests of both protocols.

#![no_main]

#[path = "../entries/discovery_request.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
