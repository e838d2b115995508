//! Requests of both protocols of discovery, as bytes from the wire.

#![no_main]

#[path = "../entries/discovery_request.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
