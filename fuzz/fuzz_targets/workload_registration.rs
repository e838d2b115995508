//! Node metadata of virtual machines, through registration.

#![no_main]

#[path = "../entries/workload_registration.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
