//! Requests to IstioCertificateService.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::certificate_request::run(data));
