//! Encoded discovery requests of both protocols.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::discovery_request::run(data));
