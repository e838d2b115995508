//! Node metadata of virtual machines, through registration.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::workload_registration::run(data));
