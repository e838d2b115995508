//! Injection templates: any text is rejected, or rendered within the limits.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::injection_templates::run(data));
