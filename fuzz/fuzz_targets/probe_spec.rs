//! Probes, scrape targets and labels of pods.

#![no_main]

#[path = "../entries/probe_spec.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
