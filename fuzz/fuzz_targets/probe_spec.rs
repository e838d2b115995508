//! Probes, scrape targets and labels of pods.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::probe_spec::run(data));
