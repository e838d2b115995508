//! Pods with any annotations and labels.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::injection_annotations::run(data));
