//! Node metadata of proxies, through translation.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::node_metadata::run(data));
