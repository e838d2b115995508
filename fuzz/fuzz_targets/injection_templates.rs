//! Injection templates: any text is rejected, or rendered within the limits.

#![no_main]

#[path = "../entries/injection_templates.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
