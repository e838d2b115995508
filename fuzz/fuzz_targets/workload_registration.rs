//! What proxies of virtual machines say of themselves, up to the WorkloadEntry that they ask for.

#![no_main]

#[path = "../entries/workload_registration.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
