//! Configuration of users, through translation.

#![no_main]

#[path = "../entries/yaml_to_xds.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
