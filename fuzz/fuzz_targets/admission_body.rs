//! Bodies of admission reviews, cut at any place.

#![no_main]

#[path = "../entries/admission_body.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
