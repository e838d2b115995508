//! Responses of applications to scrapes.

#![no_main]

#[path = "../entries/prometheus_text.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
