//! Requests to IstioCertificateService.

#![no_main]

#[path = "../entries/certificate_request.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
