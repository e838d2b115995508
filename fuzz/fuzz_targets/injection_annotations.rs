//! Pods with any annotations and labels.

#![no_main]

#[path = "../entries/injection_annotations.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
