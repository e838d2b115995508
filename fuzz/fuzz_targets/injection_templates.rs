//! Templates of an installation: any text is refused, or rendered within bounds.

#![no_main]

#[path = "../entries/injection_templates.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
