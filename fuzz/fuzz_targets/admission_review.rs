//! Bodies posted to the webhooks.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::admission_review::run(data));
