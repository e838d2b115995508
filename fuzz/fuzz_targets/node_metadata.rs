//! Node metadata of proxies, through translation.

#![no_main]

#[path = "../entries/node_metadata.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
