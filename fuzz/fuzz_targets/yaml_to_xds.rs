//! Configuration of users, through translation.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::yaml_to_xds::run(data));
