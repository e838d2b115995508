//! Responses of applications to scrapes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::prometheus_text::run(data));
