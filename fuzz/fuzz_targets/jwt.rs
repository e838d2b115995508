//! JWTs of unauthenticated clients.

#![no_main]

#[path = "../entries/jwt.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
