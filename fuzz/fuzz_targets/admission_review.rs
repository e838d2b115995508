//! What users write, up to what Envoys get.

#![no_main]

#[path = "../entries/admission_review.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
