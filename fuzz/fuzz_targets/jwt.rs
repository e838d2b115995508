//! JWTs of unauthenticated clients.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::jwt::run(data));
