//! PEM files of CAs and gateways.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::pem_bundle::run(data));
