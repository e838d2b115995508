//! Bodies of admission reviews, cut at any place.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::admission_body::run(data));
